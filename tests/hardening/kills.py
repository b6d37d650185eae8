"""Kills commands at random moments, goes on, and compares the end with that of a run that was left alone.

    python -m tests.hardening.kills --kills 1000 --out results/hardening.md          (make test-kill)

The counts are kept beside the page, so a stopped test goes on, and several calls add up. A command that has failed
begins anew with the next commit. Half of the kills end all processes of the command, the others one of them; then
nothing may be left behind, and those that are left end without a traceback.

A command is a fork of this process, which has imported everything, so it starts in milliseconds and the kills hit its
work. In one round of ten it starts as a user starts it. Of two processes that train together, each is started as
torchrun starts it, or both by ``--devices 2`` in those rounds.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from epitomic import cli
from epitomic.support.console import markdown_table
from epitomic.support.files import TEMPORARY, write_json
from epitomic.support.lock import LOCK
from epitomic.support.machine import commit
from tests.hardening.formats import digest
from tests.hardening.page import write_section
from tests.own_images import make_own
from tests.photographs import make_folders

PLANNED = 1000
AT_LEAST = 40  # kills of each command
IN_A_ROUND = 5  # kills
AS_A_USER = 10  # one round in so many starts the command as a user does
TO_END = 300.0  # seconds within which the command must end after one of its processes was killed
LEFT_BEHIND = 30.0  # seconds within which every process must be gone after a kill
STATE = "hardening-kills.json"  # the counts, beside the page
STDOUT = "stdout.txt"
# What the commands import late.
IMPORTS = (
    *(f"epitomic.cli.{name}" for name in cli.COMMANDS),
    *("epitomic.training.experiment", "epitomic.visualisation.report", "epitomic.deployment.export"),
    *("epitomic.analysis.prediction", "epitomic.reproduction.missing_runs", "torch.onnx", "onnxruntime", "onnxscript"),
    *("sklearn.datasets", "tensorboard", "torch.utils.tensorboard", "matplotlib.pyplot"),
)
NET = ("--model.width", "0.25", "--threads", "1", "--no-report", "--workers", "0")
TRAIN = ("digits", *NET, "--epochs", "3", "--batch-size", "32")
SAVED = ("--resume", "--save-every", "0.05")


@dataclass(frozen=True)
class Scenario:
    """A command that is killed and repeated.

    Attributes:
        name: Name for the table.
        words: The command without its name, to start and to go on, given the folder of this round.
        result: Everything that must be the same in the end, as a text.
        processes: Number of processes that train together.
    """

    name: str
    words: Callable[[Path], list[Any]]
    result: Callable[[Path], str]
    processes: int = 1


def files(folder: Path, pattern: str = "**/*") -> dict[str, str]:
    """The SHA-256 of all files below a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob(pattern))
        if path.is_file()
    }


def run_result(run: Path) -> str:
    """Weights, the last checkpoint's tensors, metrics, configuration, recipe and test figures."""
    last = sorted((run / "checkpoints").glob("*.safetensors"))[-1]
    names = ("model.safetensors", "metrics.csv", "config.json", "recipe.json")
    found: dict[str, Any] = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}
    found["checkpoint"] = digest(load_file(last))
    found["test"] = json.loads((run / "results.json").read_text())["test"]
    found["left"] = [path.name for path in run.rglob("*") if path.suffix == TEMPORARY or path.name == LOCK]
    return digest(found)


def table_result(folder: Path) -> str:
    """What a table keeps of each run, without times."""
    found = {}
    for run in sorted(path for path in (folder / "kept").iterdir() if path.is_dir()):
        test = json.loads((run / "results.json").read_text())["test"]
        found[run.name] = [files(run, "metrics.csv"), files(run, "recipe.json"), test]
    return digest(found)


def listed(folder: Path) -> list[str]:
    """The names of the files in a folder, but for those that were being written when a command was killed."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != TEMPORARY)


def scenarios(fixed: Path) -> list[Scenario]:
    """All scenarios; ``fixed`` gets what they read: a trained run, class folders, and images of a user."""
    run, source, own = fixed / "run", fixed / "in", make_own(fixed / "own", 30, side=24)
    make_folders(source, train=150, val=20)
    large = make_folders(fixed / "photographs", train=60, val=20, scale=2)
    subprocess.run([sys.executable, "-m", "epitomic", "train", *TRAIN, "--out", run], check=True, capture_output=True)
    before, images = files(run), source / "val"

    def unchanged(result: str) -> str:
        now = {name: sha for name, sha in files(run).items() if name in before}
        return result if now == before else "the run folder has changed"

    def train(*options: Any) -> Callable[[Path], list[Any]]:
        return lambda folder: ["train", *options, *SAVED, "--out", folder / "run"]

    def report(folder: Path) -> str:
        whole = (folder / "page.html").read_text().rstrip().endswith("</html>")
        return unchanged(f"{whole} {listed(folder)}")

    def export(kind: str, name: str) -> Scenario:
        def result(folder: Path) -> str:
            from epitomic.deployment.formats import open_exported

            x = torch.linspace(0, 1, 4 * 64).reshape(4, 1, 8, 8)
            return unchanged(f"{digest(open_exported(kind, folder / name)(x))} {listed(folder)}")

        words = ("export", run, "--to", kind, "--out")
        return Scenario(f"export --to {kind}", lambda folder: [*words, folder / name], result)

    settings = ("--seeds", "1", "--epochs", "1", "--batch-size", "128", "--jobs", "2")
    table = ("digits", "--models", "epitomic_small", "maxpool_small", *settings, *NET[:4])
    photographs = ("--from", "none", "--model", "epitomic_resnet", "--model.width", "0.125", "--workers", "2")
    sizes = ("--crop", "32", "--photographs.size", "32", "--epochs", "3", "--batch-size", "16")
    folder_options = ("--from", "none", "--model", "epitomic_small", "--epochs", "3", "--batch-size", "8")
    return [
        Scenario("train, one process", train(*TRAIN), lambda folder: run_result(folder / "run")),
        Scenario(
            "train, two processes",
            train(*TRAIN, "--wait", "60"),  # nobody ends the process that is left, as torchrun would
            lambda folder: run_result(folder / "run"),
            2,
        ),
        Scenario("train FOLDER", train(own, *NET, *folder_options), lambda folder: run_result(folder / "run")),
        Scenario(
            "train FOLDER, two workers",
            train(large, *photographs, *sizes, "--threads", "1", "--no-report"),
            lambda folder: run_result(folder / "run"),
        ),
        Scenario(
            "prepare",
            lambda folder: ["prepare", source, folder / "store", "--size", 24, "--workers", 2],
            lambda folder: digest(files(folder / "store")),
        ),
        Scenario(
            "reproduce",
            lambda folder: ["reproduce", *table, "--out", folder / "kept", "--runs", folder / "runs"],
            table_result,
        ),
        Scenario(
            "report",
            lambda folder: ["report", run, "--images", 20, "--no-robustness", "--out", folder / "page.html"],
            report,
        ),
        Scenario(
            "predict",
            lambda folder: ["predict", run, images, "--format", "csv"],
            lambda folder: unchanged((folder / STDOUT).read_text()),
        ),
        export("torch", "model.pt2"),
        export("onnx", "model.onnx"),
    ]


class Command:
    """The processes of a command that was started.

    Args:
        scenario: The command.
        folder: Folder of this round. The command's output goes there, its errors to the file ``log`` beside it.
        as_a_user: Whether to start it by ``python -m epitomic``, and not as a fork.
    """

    def __init__(self, scenario: Scenario, folder: Path, *, as_a_user: bool) -> None:
        words = [str(word) for word in scenario.words(folder)]
        self.statuses: dict[int, int | None] = {}
        if as_a_user:
            devices = ["--devices", str(scenario.processes)] if scenario.processes > 1 else []
            self._start(folder, [*words, *devices], {}, as_a_user)
            return
        port = free_port()
        for rank in range(scenario.processes):
            self._start(folder, words, torchrun(rank, scenario.processes, port), as_a_user)

    def _start(self, folder: Path, words: list[str], environment: dict[str, str], as_a_user: bool) -> None:
        sys.stdout.flush()
        child = os.fork()
        if child:
            self.statuses[child] = None
            return
        try:
            os.setsid()
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(folder / STDOUT, flags), 1)
            os.dup2(os.open(folder.parent / "log", flags | os.O_APPEND), 2)
            os.environ.update(environment, TMPDIR=str(folder.parent))
            tempfile.tempdir = None
            if as_a_user:
                os.execv(sys.executable, [sys.executable, "-m", "epitomic", *words])
            sys.argv = ["epitomic", *words]
            status = cli.main()
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # nothing that this process has to clean up is the child's

    def wait(self, seconds: float) -> bool:
        """Waits until all processes that were started have ended; returns whether they have."""
        end = time.monotonic() + seconds
        while True:
            for pid in [pid for pid, status in self.statuses.items() if status is None]:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    self.statuses[pid] = os.waitstatus_to_exitcode(status)
            if None not in self.statuses.values():
                return True
            if time.monotonic() > end:
                return False
            time.sleep(0.005)

    def alive(self) -> list[int]:
        """The processes of the command, those that it has started, and those that these have started."""
        rows = subprocess.run(["ps", "-eo", "pid,ppid,sess,stat"], capture_output=True, text=True, check=True).stdout
        table = [line.split() for line in rows.splitlines()[1:]]
        found = {int(pid) for pid, _, sess, stat in table if int(sess) in self.statuses and "Z" not in stat}
        while True:
            more = {int(pid) for pid, parent, _, stat in table if int(parent) in found and "Z" not in stat} - found
            if not more:
                return sorted(found)
            found |= more


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def torchrun(rank: int, processes: int, port: int) -> dict[str, str]:
    """The environment in which torchrun starts a process."""
    if processes == 1:
        return {}
    count, own = str(processes), str(rank)
    return {
        **{"RANK": own, "LOCAL_RANK": own, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "GROUP_WORLD_SIZE": "1"},
        **{"GROUP_RANK": "0", "NODE_RANK": "0", "TORCHELASTIC_RUN_ID": "kills", "MASTER_ADDR": "127.0.0.1"},
        "MASTER_PORT": str(port),
    }


def play(
    scenario: Scenario, folder: Path, chance: random.Random, kills: int, usual: float, *, as_a_user: bool
) -> tuple[int, str | None]:
    """Starts, kills and repeats; returns the number of kills, and what went wrong or None."""
    done = 0
    while True:
        command = Command(scenario, folder, as_a_user=as_a_user)
        if done < kills and not command.wait(chance.uniform(0, usual)):
            group = command.alive()
            victims = group if chance.random() < 0.5 or len(group) < 2 else [chance.choice(group)]
            for victim in victims:
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            done += 1
            problem = _wait_for_all(command, group)
            told = (folder.parent / "log").read_text(errors="replace")
            if problem is None and victims != group and "Traceback" in told:
                problem = f"a traceback after one process was killed: {told[-1500:]}"
            if problem is not None:
                return done, problem
            continue
        command.wait(float("inf"))
        if not any(command.statuses.values()):
            return done, None
        return done, f"exit status {[*command.statuses.values()]}: {(folder.parent / 'log').read_text()[-1500:]}"


def _wait_for_all(command: Command, group: list[int]) -> str | None:
    """Waits until the whole group has ended; returns what is wrong if it does not."""
    if not command.wait(TO_END):  # if only one of its processes was killed, it may go on
        return f"no end within {TO_END:g} seconds after one process was killed"
    end = time.monotonic() + LEFT_BEHIND
    while left := [one for one in group if Path(f"/proc/{one}").exists()]:
        if time.monotonic() > end:
            return f"processes are left behind: {left}"
        time.sleep(0.05)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=PLANNED, help="number of kills in all (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/hardening.md"), help="page (default: %(default)s)")
    parser.add_argument("--only", help="name of the only scenario to play (default: all)")
    args = parser.parse_args()
    state = args.out.with_name(STATE)
    counts: dict[str, dict[str, Any]] = {}
    commits: list[str] = []
    if state.is_file():
        kept = json.loads(state.read_text())
        counts, commits = kept["counts"], kept["commits"]
    if str(commit()) not in commits:  # what failed may be mended
        counts = {name: entry for name, entry in counts.items() if not entry["failures"]}
    commits = list(dict.fromkeys([*commits, str(commit())]))
    for name in IMPORTS:
        importlib.import_module(name)
    fixed = Path(tempfile.mkdtemp(prefix="epitomic-kills-"))
    try:
        chosen = [one for one in scenarios(fixed) if args.only in (None, one.name)]
        straight: dict[tuple[str, bool], tuple[str, float]] = {}
        while total(counts) < args.kills:
            scenario = following(chosen, counts, args.kills)
            entry = counts.setdefault(scenario.name, {"kills": 0, "ends": 0, "failures": 0, "seconds": 0.0})
            as_a_user = entry["ends"] % AS_A_USER == AS_A_USER - 1
            began = time.monotonic()
            if (scenario.name, as_a_user) not in straight:
                straight[scenario.name, as_a_user] = left_alone(scenario, fixed / "round" / "out", as_a_user)
            expected, usual = straight[scenario.name, as_a_user]
            seed = f"{scenario.name} {entry['ends']} {entry['kills']}"
            folder = fixed / "round" / "out"
            folder.mkdir(parents=True)
            began_to_play = time.monotonic()
            kills, problem = play(scenario, folder, random.Random(seed), IN_A_ROUND, usual, as_a_user=as_a_user)
            if not kills:  # it was faster than the time that was drawn
                seconds = min(usual, time.monotonic() - began_to_play)
                straight[scenario.name, as_a_user] = expected, seconds
            if problem is None and scenario.result(folder) != expected:
                problem = "the result differs"
            entry["kills"] += kills
            entry["ends"] += 1
            entry["failures"] += problem is not None
            entry["seconds"] += time.monotonic() - began
            how = ", started as a user does" if as_a_user else ""
            print(f"{scenario.name}{how}: {kills} kills, {problem or 'the same'}; {total(counts)} in all", flush=True)
            write_json(state, {"commits": commits, "counts": counts})
            write_page(args.out, counts, commits)
            if problem is not None:
                sockets = shutil.ignore_patterns("listener-*")
                kept = Path("build/kills") / seed.replace(" ", "-")
                shutil.copytree(folder.parent, kept, dirs_exist_ok=True, ignore=sockets)
            shutil.rmtree(folder.parent)
    finally:
        shutil.rmtree(fixed)
    return 1 if any(entry["failures"] for entry in counts.values()) else 0


def following(chosen: list[Scenario], counts: dict[str, dict[str, Any]], planned: int) -> Scenario:
    """The scenario to play next: one that is rare and cheap so far, but each gets `AT_LEAST` kills.

    The product of kills and seconds is kept even, so a command that is nine times slower gets a third of the kills.
    """
    kills = {one.name: counts.get(one.name, {}).get("kills", 0) for one in chosen}
    missing = {name: max(0, AT_LEAST - count) for name, count in kills.items()}
    if sum(missing.values()) >= planned - total(counts):
        chosen = [one for one in chosen if missing[one.name]] or chosen
    return min(chosen, key=lambda one: kills[one.name] * counts.get(one.name, {}).get("seconds", 0.0))


def left_alone(scenario: Scenario, folder: Path, as_a_user: bool) -> tuple[str, float]:
    """The result of a command that is not killed, and its seconds."""
    folder.mkdir(parents=True)
    began = time.monotonic()
    _, problem = play(scenario, folder, random.Random(0), 0, 0.0, as_a_user=as_a_user)
    if problem is not None:
        raise SystemExit(f"{scenario.name} fails without any kill: {problem}")
    seconds = time.monotonic() - began
    result = scenario.result(folder)
    shutil.rmtree(folder.parent)
    return result, seconds


def total(counts: dict[str, dict[str, Any]]) -> int:
    return sum(entry["kills"] for entry in counts.values())


def write_page(page: Path, counts: dict[str, dict[str, Any]], commits: list[str]) -> None:
    rows = [
        [name, *(str(entry[key]) for key in ("kills", "ends", "failures")), f"{entry['seconds']:.0f}"]
        for name, entry in counts.items()
    ]
    table = markdown_table(("command", "kills", "ends compared", "failures", "seconds"), rows)
    text = (
        f"{total(counts)} kills of the {PLANNED:,} that are planned. After each round of up to {IN_A_ROUND} kills the "
        "command ran to its end, and the end was compared with that of a run that was left alone. A command that "
        "failed began anew when the fault was mended. "
        f"Tested: {', '.join(commits)}.\n"
    )
    write_section(page, "Kills", text, table, "make test-kill")


if __name__ == "__main__":
    sys.exit(main())
