"""Trains what a table still lacks, several runs at a time, and rewrites the table when a run ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from epitomic.reproduction.accuracy_table import accuracy_table
from epitomic.reproduction.finished_runs import keep_run, read_runs
from epitomic.reproduction.table_plans import PlannedRun, TablePlan
from epitomic.support.console import Progress, percent
from epitomic.support.files import write_text
from epitomic.support.parent import tied_to_this_process
from epitomic.training.recipe import Recipe
from epitomic.training.signals import StopSignals

POLL = 0.2  # seconds between two looks at the processes
TAIL = 2000  # bytes at the end of a log in which we look for its last line


class Interrupted(Exception):  # noqa: N818
    """A signal stopped the trainings, and each has saved a checkpoint."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def train_missing(
    table: TablePlan,
    recipe: Recipe,
    planned: Sequence[PlannedRun],
    *,
    kept: Path,
    runs: Path,
    jobs: int,
    threads: int,
    options: Sequence[str],
) -> dict[str, str]:
    """Trains the planned runs that are not finished.

    Args:
        table: Plan of the table.
        recipe: Recipe of the table.
        planned: Runs that the table should have.
        kept: Folder of the finished runs and of ``table.md``.
        runs: Folder of the run folders, with weights, and of the logs.
        jobs: Number of trainings at a time.
        threads: Threads of a training.
        options: Words to add to each ``epitomic train`` command.

    Returns:
        Name of each run that failed -> the reason.

    Raises:
        Interrupted: After Ctrl-C or SIGTERM, when all trainings have saved a checkpoint.
    """

    def start(one: PlannedRun) -> _Training:
        chosen = ["--model", one.model, "--seed", str(one.seed), "--threads", str(threads)]
        words = [*options, *chosen, "--resume", "--no-report", "--out", str(runs / one.name)]
        return _Training.start(one, ["train", table.name, *words], runs / f"{one.name}.log")

    finished = {run.planned for run in read_runs(table, kept, recipe)}
    missing = [one for one in planned if one not in finished]
    done = len(planned) - len(missing)
    failed: dict[str, str] = {}
    with Progress(len(planned), done=done, stream=sys.stdout) as progress:
        progress.say(f"{table.title}: {len(planned)} runs, {done} of them finished")
        for one, problem in _train(missing, start, jobs, progress):
            if problem is not None:
                failed[one.name] = problem
                progress.say(f"{one.name}: {problem}")
                continue
            keep_run(runs / one.name, kept / one.name)
            now_finished = read_runs(table, kept, recipe)
            write_text(kept / "table.md", accuracy_table(table, now_finished))
            run = next(run for run in now_finished if run.planned == one)
            done = progress.done = done + 1
            figures = f"test error {percent(run.error())}, {run.results['wall_seconds']:.0f} s"
            progress.say(f"{one.name}: {figures}; {done} of {len(planned)} runs are finished")
    return failed


@dataclass
class _Training:
    """A training in a process of its own."""

    planned: PlannedRun
    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, planned: PlannedRun, command: list[str], log: Path) -> _Training:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            # In a session of its own, Ctrl-C does not reach the training directly: it gets one SIGTERM, from us.
            process = subprocess.Popen(
                [sys.executable, "-m", "epitomic", *command],
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=tied_to_this_process(),  # else it would go on after `kill -9` of this one
            )
        return cls(planned, process, log)

    def state(self) -> str:
        """Returns the last line of the log."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL))
            lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "starting")


def _train(
    missing: Iterable[PlannedRun], start: Callable[[PlannedRun], _Training], jobs: int, progress: Progress
) -> Iterator[tuple[PlannedRun, str | None]]:
    """Trains ``jobs`` runs at a time; yields each run when it ends, with what went wrong or None."""
    waiting, running = deque(missing), list[_Training]()
    with StopSignals() as stop:
        try:
            while waiting or running:
                while waiting and len(running) < jobs and not stop.received:
                    running.append(start(waiting.popleft()))
                    progress.say(f"{running[-1].planned.name}: started, log in {running[-1].log}")
                if stop.received:
                    raise Interrupted(stop.received)
                time.sleep(POLL)
                for training in [t for t in running if t.process.poll() is not None]:
                    running.remove(training)
                    status = training.process.returncode
                    yield training.planned, None if status == 0 else f"exit status {status}: {training.state()}"
                progress.update("\n".join(f"{training.planned.name}: {training.state()}" for training in running))
        finally:
            for training in running:
                training.process.send_signal(signal.SIGTERM)
            for training in running:
                training.process.wait()
