"""Damages files of every format and judges what reading them does: ``make test-hunt``.

    python -m tests.hardening.hunt --cases 10000 --out results/hardening.md

Cases are numbered, and a number always makes the same file. A case that fails is kept in build/hunt/; mend the fault,
and move the file to tests/hardening/corpus/FORMAT/, which every run reads again. A hunt that was stopped, or that had
failures, goes on: it reads what failed again, and then the cases that are left.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from epitomic.support.console import Progress, markdown_table
from epitomic.support.files import read_json, write_json
from epitomic.support.machine import commit
from tests.hardening.formats import Format, all_formats
from tests.hardening.runner import GOOD, Outcome, read_sound, run_case

CORPUS = Path(__file__).parent / "corpus"
FAILED = Path("build/hunt")
STATE = "state.json"  # in FAILED: how far a hunt is that is not over
SAVE_EVERY = 50  # cases


@dataclass
class Hunt:
    """The counts of a hunt, and the cases that failed.

    Attributes:
        formats: Names of all formats, in the order of the cases.
        following: Number of the first case that was not read yet.
        counts: Number of cases of each outcome, by format.
        failures: Format, number, outcome and text of what failed; files of the corpus have the number -1.
        corpus: Number of files of the corpus.
        seconds: Time that it took.
        commits: What was tested.
    """

    formats: list[str]
    following: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[tuple[str, int, str, str]] = field(default_factory=list)
    corpus: int = 0
    seconds: float = 0.0
    commits: list[str] = field(default_factory=list)

    def note(self, name: str, number: int, outcome: Outcome) -> None:
        """Counts a case."""
        if number < 0:
            self.corpus += 1
        else:
            self.counts.setdefault(name, Counter())[outcome.kind] += 1
            self.following = max(self.following, number + 1)
        if not outcome.good:
            self.failures.append((name, number, outcome.kind, outcome.text))

    def take_failed(self) -> list[int]:
        """Takes the cases that failed out of the counts, and returns their numbers."""
        failed, self.failures, self.corpus = self.failures, [], 0
        for name, number, kind, _ in failed:
            if number >= 0:
                self.counts[name] -= Counter([kind])
        return sorted(number for _, number, _, _ in failed if number >= 0)

    def table(self) -> str:
        """The counts as Markdown."""
        kinds = [*GOOD, *sorted({kind for counts in self.counts.values() for kind in counts} - {*GOOD})]
        rows = [
            [name, *(str(self.counts[name][kind]) for kind in kinds)] for name in self.formats if self.counts.get(name)
        ]
        totals = [str(sum(counts[kind] for counts in self.counts.values())) for kind in kinds]
        return markdown_table(("format", *kinds), [*rows, ["**all**", *totals]])

    @property
    def cases(self) -> int:
        """Number of cases that were read."""
        return sum(sum(counts.values()) for counts in self.counts.values())

    def save(self, folder: Path) -> None:
        """Writes all of this to a file in ``folder``."""
        write_json(folder / STATE, vars(self))

    @classmethod
    def load(cls, folder: Path | None, formats: list[str]) -> Hunt:
        """Reads a hunt that is not over and has the same formats; otherwise begins a new one."""
        path = None if folder is None else folder / STATE
        values: dict[str, Any] = read_json(path) if path is not None and path.is_file() else {}
        if values.get("formats") != formats:
            return cls(formats)
        counts = {name: Counter(entry) for name, entry in values["counts"].items()}
        return cls(**{**values, "counts": counts, "failures": [tuple(entry) for entry in values["failures"]]})


def slug(name: str) -> str:
    """The name of a format as a folder.

    >>> slug("store: train/table.safetensors")
    'store-train-table.safetensors'
    """
    return re.sub(r"[^\w.]+", "-", name)


def mutation(form: Format, number: int, sound: bytes) -> bytes:
    """The damaged file of a case."""
    return form.change(sound, np.random.default_rng([number, *form.name.encode()]))


def hunt(
    folder: Path, cases: int, *, seconds: float = float("inf"), failed: Path | None = None, quiet: bool = True
) -> Hunt:
    """Reads the corpus, then ``cases`` damaged files, the formats in turn; stops early after ``seconds``.

    Args:
        folder: Gets the sound files.
        cases: Number of damaged files in all.
        seconds: Longest time.
        failed: Folder for what failed, and for how far the hunt is; without it nothing is kept.
        quiet: Whether to show nothing.
    """
    began, formats = time.monotonic(), all_formats(folder)
    found = Hunt.load(failed, [form.name for form in formats])
    before, again = found.seconds, found.take_failed()
    found.commits = list(dict.fromkeys([*found.commits, str(commit())]))
    expected = {form.name: read_sound(form) for form in formats}
    for form in formats:
        for path in sorted((CORPUS / slug(form.name)).glob("*")):
            found.note(form.name, -1, run_case(form, path.read_bytes(), expected[form.name]))
    with Progress(cases, done=found.following, unit="cases", quiet=quiet) as progress:
        for number in itertools.chain(again, range(found.following, cases)):
            found.seconds = before + time.monotonic() - began
            if found.seconds - before > seconds:
                break
            form = formats[number % len(formats)]
            contents = mutation(form, number, form.path.read_bytes())
            outcome = run_case(form, contents, expected[form.name])
            found.note(form.name, number, outcome)
            if not outcome.good and failed is not None:
                (failed / slug(form.name)).mkdir(parents=True, exist_ok=True)
                (failed / slug(form.name) / f"{number}.bin").write_bytes(contents)
                progress.say(f"{form.name}, case {number}: {outcome.kind}: {outcome.text[-600:]}")
            if failed is not None and number % SAVE_EVERY == 0:
                found.save(failed)
            progress.update(f"{found.following:,} cases, {len(found.failures)} failures", found.following)
    if failed is not None:
        found.save(failed)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="number of damaged files (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, help="Markdown page whose section 'Damaged files' is replaced (default: none)"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = hunt(Path(folder), args.cases, failed=FAILED, quiet=False)
    print(found.table())
    for name, number, kind, text in found.failures[:50]:
        print(f"{name}, case {number}: {kind}: {text[-300:]}")
    if args.out:
        from tests.hardening.page import write_section

        text = (
            f"{found.cases:,} damaged files of {len(found.formats)} kinds, and {found.corpus} files that failed once: "
            f"{len(found.failures)} failures, in {found.seconds:.0f} s. Tested: {', '.join(found.commits)}.\n"
        )
        command = f"python -m tests.hardening.hunt --cases {args.cases}"
        write_section(args.out, "Damaged files", text, found.table(), command)
    if found.following >= args.cases and not found.failures:
        (FAILED / STATE).unlink()  # the next hunt begins anew
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
