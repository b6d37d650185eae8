"""Kills commands at random moments, goes on, and compares the end with that of a run that was left alone.

    python -m tests.hardening.kills --kills 100 --out results/hardening.md          (make test-kill)

The counts are kept beside the page, so a stopped test goes on, and several calls add up. Half of the kills end the
whole group of processes, the others one of its processes; then nothing may be left behind.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from epitomic.support.console import markdown_table
from epitomic.support.files import write_json
from tests.hardening.formats import digest
from tests.hardening.page import write_section
from tests.photographs import make_folders

TO_END = 300.0  # seconds within which the command must end after one of its processes was killed
LEFT_BEHIND = 30.0  # seconds within which every process must be gone after a kill
TRAIN = ("digits", "--model.width", "0.25", "--epochs", "3", "--batch-size", "32", "--threads", "1", "--no-report")


@dataclass(frozen=True)
class Scenario:
    """A command that is killed and repeated.

    Attributes:
        name: Name for the table.
        words: The command, to start and to go on, given the folder of this round.
        result: Everything that must be the same in the end, as a text.
    """

    name: str
    words: Callable[[Path], list[str]]
    result: Callable[[Path], str]


def files(folder: Path, pattern: str = "**/*") -> dict[str, str]:
    """The SHA-256 of all files below a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob(pattern))
        if path.is_file()
    }


def run_result(run: Path) -> dict[str, Any]:
    """Weights, the last checkpoint's tensors, metrics, configuration, recipe and test figures."""
    last = sorted((run / "checkpoints").glob("*.safetensors"))[-1]
    names = ("model.safetensors", "metrics.csv", "config.json", "recipe.json")
    found: dict[str, Any] = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}
    found["checkpoint"] = digest(load_file(last))
    found["test"] = json.loads((run / "results.json").read_text())["test"]
    leftovers = [path.name for path in run.rglob("*") if path.suffix == ".tmp" or path.name == "lock"]
    return {**found, "left": leftovers}


def table_result(folder: Path) -> str:
    """What a table keeps of each run, without times."""
    kept = folder / "kept"
    found = {}
    for run in sorted(path for path in kept.iterdir() if path.is_dir()):
        test = json.loads((run / "results.json").read_text())["test"]
        found[run.name] = [files(run, "metrics.csv"), files(run, "recipe.json"), test]
    return digest(found)


def epitomic(*words: object) -> list[str]:
    return [sys.executable, "-m", "epitomic", *map(str, words)]


def scenarios(fixed: Path) -> list[Scenario]:
    """All scenarios; ``fixed`` gets what they read: a trained run and class folders."""
    run, source = fixed / "run", fixed / "in"
    make_folders(source, train=150, val=20)
    subprocess.run(epitomic("train", *TRAIN, "--out", run), check=True, capture_output=True)
    before = files(run)
    images = fixed / "predict"
    shutil.copytree(source / "val", images)
    saved = ("--resume", "--save-every", "0.05")
    table = ("digits", "--models", "epitomic_small", "maxpool_small", "--seeds", "1", "--epochs", "2", "--jobs", "2")

    def unchanged(result: str) -> str:
        now = {name: sha for name, sha in files(run).items() if name in before}
        return result if now == before else "the run folder has changed"

    def report(folder: Path) -> str:
        page = (folder / "page.html").read_text()
        return unchanged(
            f"{page.rstrip().endswith('</html>')} {sorted(path.name for path in folder.iterdir())}".lower()
        )

    return [
        Scenario(
            "train, one process",
            lambda folder: epitomic("train", *TRAIN, *saved, "--out", folder / "run"),
            lambda folder: digest(run_result(folder / "run")),
        ),
        Scenario(
            "train, two processes",
            lambda folder: epitomic("train", *TRAIN, *saved, "--devices", 2, "--out", folder / "run"),
            lambda folder: digest(run_result(folder / "run")),
        ),
        Scenario(
            "prepare",
            lambda folder: epitomic("prepare", source, folder / "store", "--size", 24, "--workers", 2),
            lambda folder: digest(files(folder / "store")),
        ),
        Scenario(
            "reproduce",
            lambda folder: epitomic(
                *("reproduce", *table, "--model.width", 0.25, "--threads", 1),
                *("--out", folder / "kept", "--runs", folder / "runs"),
            ),
            table_result,
        ),
        Scenario(
            "report",
            lambda folder: epitomic("report", run, "--images", 50, "--no-robustness", "--out", folder / "page.html"),
            report,
        ),
        Scenario(
            "predict",
            lambda folder: ["sh", "-c", f"{' '.join(epitomic('predict', run, images))} > {folder}/found.txt"],
            lambda folder: unchanged((folder / "found.txt").read_text()),
        ),
    ]


def alive(session: int) -> list[int]:
    """The processes of a session, and those that they started in sessions of their own."""
    rows = subprocess.run(["ps", "-eo", "pid,ppid,sess,stat"], capture_output=True, text=True, check=True).stdout
    table = [line.split() for line in rows.splitlines()[1:]]
    found = {int(pid) for pid, _, sess, stat in table if int(sess) == session and "Z" not in stat}
    while True:
        more = {int(pid) for pid, parent, _, stat in table if int(parent) in found and "Z" not in stat} - found
        if not more:
            return sorted(found)
        found |= more


def play(scenario: Scenario, folder: Path, chance: random.Random, kills: int, usual: float) -> tuple[int, str | None]:
    """Starts, kills and repeats; returns the number of kills, and what went wrong or None."""
    done = 0
    while True:
        log = (folder.parent / "log").open("wb")
        process = subprocess.Popen(scenario.words(folder), stdout=log, stderr=log, start_new_session=True)
        if done < kills:
            try:
                process.wait(chance.uniform(0, 1.1 * usual))
            except subprocess.TimeoutExpired:
                group = alive(process.pid)
                victims = group if chance.random() < 0.5 or len(group) < 2 else [chance.choice(group)]
                for victim in victims:
                    try:
                        os.kill(victim, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                done += 1
                problem = _wait_for_all(process, group)
                if problem is not None:
                    return done, problem
                continue
        if process.wait() == 0:
            return done, None
        return done, f"exit status {process.returncode}: {(folder.parent / 'log').read_text()[-500:]}"


def _wait_for_all(process: subprocess.Popen[bytes], group: list[int]) -> str | None:
    """Waits until the whole group has ended; returns what is wrong if it does not."""
    try:
        process.wait(TO_END)  # if only one of its processes was killed, it may go on
    except subprocess.TimeoutExpired:
        return f"no end within {TO_END:g} seconds after one process was killed"
    end = time.monotonic() + LEFT_BEHIND
    while left := [one for one in group if Path(f"/proc/{one}").exists()]:
        if time.monotonic() > end:
            return f"processes are left behind: {left}"
        time.sleep(0.05)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="number of kills in all (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/hardening.md"), help="page (default: %(default)s)")
    parser.add_argument("--only", help="name of the only scenario to play (default: all)")
    args = parser.parse_args()
    state = args.out.with_name("hardening-kills.json")
    counts: dict[str, dict[str, int]] = json.loads(state.read_text()) if state.is_file() else {}
    with tempfile.TemporaryDirectory() as name:
        fixed = Path(name)
        chosen = [one for one in scenarios(fixed) if args.only in (None, one.name)]
        straight: dict[str, tuple[str, float]] = {}
        while total(counts) < args.kills:
            scenario = min(chosen, key=lambda one: counts.get(one.name, {}).get("kills", 0))
            if scenario.name not in straight:
                folder = fixed / "straight" / scenario.name.replace(" ", "-").replace(",", "")
                folder.mkdir(parents=True)
                began = time.monotonic()
                subprocess.run(scenario.words(folder), check=True, capture_output=True)
                straight[scenario.name] = scenario.result(folder), time.monotonic() - began
            expected, usual = straight[scenario.name]
            entry = counts.setdefault(scenario.name, {"kills": 0, "ends": 0, "failures": 0})
            seed = f"{scenario.name} {entry['ends']} {entry['kills']}"
            folder = fixed / "round" / "out"
            folder.mkdir(parents=True)
            kills, problem = play(scenario, folder, random.Random(seed), 5, usual)
            if problem is None and scenario.result(folder) != expected:
                problem = "the result differs"
            entry["kills"] += kills
            entry["ends"] += 1
            entry["failures"] += problem is not None
            print(f"{scenario.name}: {kills} kills, {problem or 'the same'}; {total(counts)} in all", flush=True)
            write_json(state, counts)
            write_page(args.out, counts)
            shutil.rmtree(folder.parent)
    return 1 if any(entry["failures"] for entry in counts.values()) else 0


def total(counts: dict[str, dict[str, int]]) -> int:
    return sum(entry["kills"] for entry in counts.values())


def write_page(page: Path, counts: dict[str, dict[str, int]]) -> None:
    rows = [[name, *(str(entry[key]) for key in ("kills", "ends", "failures"))] for name, entry in counts.items()]
    table = markdown_table(("command", "kills", "ends compared", "failures"), rows)
    text = (
        f"{total(counts)} kills of the 1,000 that are planned. After each round of up to five kills the command ran to "
        "its end, and the end was compared with that of a run that was left alone.\n"
    )
    write_section(page, "Kills", text, table, "make test-kill")


if __name__ == "__main__":
    sys.exit(main())
