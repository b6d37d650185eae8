"""Damages files of every format and judges what reading them does: ``make test-hunt``.

    python -m tests.hardening.hunt --cases 10000 --out results/hardening.md

Cases are numbered, and a number always makes the same file. A case that fails is kept in build/hunt/; mend the fault,
and move the file to tests/hardening/corpus/FORMAT/, which every run reads again.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from epitomic.support.console import Progress, markdown_table
from tests.hardening.formats import Format, all_formats
from tests.hardening.runner import GOOD, Outcome, read_sound, run_case

CORPUS = Path(__file__).parent / "corpus"
FAILED = Path("build/hunt")


@dataclass
class Hunt:
    """The counts of a hunt, and the cases that failed."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[tuple[str, int, Outcome]] = field(default_factory=list)

    def note(self, form: Format, number: int, outcome: Outcome) -> None:
        self.counts.setdefault(form.name, Counter())[outcome.kind] += 1
        if not outcome.good:
            self.failures.append((form.name, number, outcome))

    def table(self) -> str:
        kinds = [*GOOD, *sorted({kind for counts in self.counts.values() for kind in counts} - {*GOOD})]
        rows = [[name, *(str(counts[kind]) for kind in kinds)] for name, counts in self.counts.items()]
        totals = [str(sum(counts[kind] for counts in self.counts.values())) for kind in kinds]
        return markdown_table(("format", *kinds), [*rows, ["**all**", *totals]])

    @property
    def cases(self) -> int:
        return sum(sum(counts.values()) for counts in self.counts.values())


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
    folder: Path,
    cases: int,
    *,
    first: int = 0,
    seconds: float = float("inf"),
    failed: Path | None = None,
    quiet: bool = True,
) -> Hunt:
    """Reads the corpus, then ``cases`` damaged files, the formats in turn; stops early after ``seconds``."""
    end, found, formats = time.monotonic() + seconds, Hunt(), all_formats(folder)
    expected = {form.name: read_sound(form) for form in formats}
    for form in formats:
        for path in sorted((CORPUS / slug(form.name)).glob("*")):
            found.note(form, -1, run_case(form, path.read_bytes(), expected[form.name]))
    with Progress(cases, unit="cases", quiet=quiet) as progress:
        for number in range(first, first + cases):
            if time.monotonic() > end:
                break
            form = formats[number % len(formats)]
            contents = mutation(form, number, form.path.read_bytes())
            outcome = run_case(form, contents, expected[form.name])
            found.note(form, number, outcome)
            if not outcome.good and failed is not None:
                (failed / slug(form.name)).mkdir(parents=True, exist_ok=True)
                (failed / slug(form.name) / f"{number}.bin").write_bytes(contents)
                progress.say(f"{form.name}, case {number}: {outcome.kind}: {outcome.text[-600:]}")
            progress.update(f"{number + 1 - first:,} cases, {len(found.failures)} failures", number + 1 - first)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000, help="number of damaged files (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, help="Markdown page whose section 'Damaged files' is replaced (default: none)"
    )
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = hunt(Path(folder), args.cases, first=args.first, failed=FAILED, quiet=False)
    print(found.table())
    for name, number, outcome in found.failures[:50]:
        print(f"{name}, case {number}: {outcome.kind}: {outcome.text[-300:]}")
    if args.out:
        from tests.hardening.page import write_section

        command = f"python -m tests.hardening.hunt --cases {args.cases} --first {args.first}"
        text = f"{found.cases:,} damaged files, {len(found.failures)} failures, in {time.monotonic() - began:.0f} s:\n"
        write_section(args.out, "Damaged files", text, found.table(), command)
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
