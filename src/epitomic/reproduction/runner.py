"""Runs the trainings of a table, a few at a time, each in a process of its own."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from epitomic.reproduction.tables import Planned
from epitomic.training.signals import StopSignals

TELL_EVERY = 60.0  # seconds between the states of the runs under way
LAST = 2000  # bytes of a log that are looked at


@dataclass
class Training:
    """One training under way."""

    planned: Planned
    process: subprocess.Popen[bytes]
    log: Path

    def state(self) -> str:
        """The last line that it wrote."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - LAST))
            lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "starting")


class Interrupted(Exception):  # noqa: N818
    """A signal stopped the trainings; each has saved a checkpoint."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run_all(
    planned: Iterable[Planned],
    command: Callable[[Planned], list[str]],
    log: Callable[[Planned], Path],
    *,
    jobs: int,
    tell: Callable[[str], None],
) -> Iterator[tuple[Planned, str | None]]:
    """Runs every training; yields each as it ends, with what went wrong or None.

    Args:
        planned: The runs.
        command: What follows ``epitomic`` on the command line of a run.
        log: Where its output goes.
        jobs: How many at a time.
        tell: Says a line to the user.

    Raises:
        Interrupted: After Ctrl-C or SIGTERM, when all trainings have stopped.
    """
    waiting, running = deque(planned), list[Training]()
    told = time.monotonic()
    with StopSignals() as stop, contextlib.ExitStack() as files:
        try:
            while waiting or running:
                while waiting and len(running) < jobs and not stop.received:
                    one = waiting.popleft()
                    running.append(_start(one, command(one), log(one), files))
                    tell(f"{running[-1].planned.name}: started, log in {running[-1].log}")
                if stop.received:
                    raise Interrupted(stop.received)
                time.sleep(0.2)
                for training in [t for t in running if t.process.poll() is not None]:
                    running.remove(training)
                    status = training.process.returncode
                    yield training.planned, None if status == 0 else f"exit status {status}: {training.state()}"
                if time.monotonic() - told > TELL_EVERY:
                    told = time.monotonic()
                    for training in running:
                        tell(f"{training.planned.name}: {training.state()}")
        finally:
            for training in running:
                training.process.send_signal(signal.SIGTERM)
            for training in running:
                training.process.wait()


def _start(planned: Planned, command: list[str], path: Path, files: contextlib.ExitStack) -> Training:
    path.parent.mkdir(parents=True, exist_ok=True)
    file: IO[bytes] = files.enter_context(path.open("ab"))
    # A session of its own: Ctrl-C reaches it once, as the signal that this process sends on.
    process = subprocess.Popen(
        [sys.executable, "-m", "epitomic", *command],
        stdout=file,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return Training(planned, process, path)
