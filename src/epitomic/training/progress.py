"""What the user sees of a training: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

LINE_EVERY = 30.0  # seconds between plain lines within an epoch


class Progress:
    """Shows rate, loss, validation error and time left.

    Args:
        steps: In the whole run,
        done: of which so many are done already.
        batch_size: Images in a step.
        epochs: In the whole run.
        quiet: Show nothing.
    """

    def __init__(self, steps: int, done: int, batch_size: int, epochs: int, *, quiet: bool = False) -> None:
        self.steps, self.first, self.batch_size, self.epochs = steps, done, batch_size, epochs
        self.quiet = quiet
        self.validation = ""
        self.began = self.last_line = time.monotonic()
        self.step = done
        self.bar: Any = None
        if not quiet and sys.stdout.isatty():
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[text]}"))
            self.bar = Progress(*columns, refresh_per_second=2, transient=True)
            self.task = self.bar.add_task("", total=steps, completed=done, text="")

    def __enter__(self) -> Progress:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.bar:
            self.bar.stop()

    def advance(self, epoch: int, step: int, loss: float) -> None:
        """Step ``step`` is done; ``loss`` is the epoch's mean so far."""
        self.step = step
        if self.quiet:
            return
        now = time.monotonic()
        if self.bar:
            if now - self.last_line > 0.2:
                text = f"loss {loss:.4f}  {self.validation}{self._speed(now)}"
                self.bar.update(self.task, completed=step, description=f"epoch {epoch + 1}/{self.epochs}", text=text)
                self.last_line = now
        elif now - self.last_line > LINE_EVERY:
            self.last_line = now
            self.say(f"epoch {epoch + 1}/{self.epochs}  step {step}/{self.steps}  loss {loss:.4f}  {self._speed(now)}")

    def end_epoch(self, epoch: int, loss: float, error: float, best: bool) -> None:
        """An epoch is done and validated."""
        now = time.monotonic()
        self.last_line = now
        self.validation = f"validation error {100 * error:.2f} %  "
        mark = "*" if best else " "
        self.say(
            f"epoch {epoch + 1}/{self.epochs}  loss {loss:.4f}  validation error {100 * error:.2f} % {mark}  "
            f"{self._speed(now)}"
        )

    def say(self, text: str) -> None:
        """A line for the user."""
        if self.bar:
            self.bar.console.print(text, highlight=False)
        elif not self.quiet:
            print(text, flush=True)

    def _speed(self, now: float) -> str:
        done = self.step - self.first
        if not done:
            return ""
        pace = (now - self.began) / done  # seconds a step
        return f"{self.batch_size / pace:,.0f} images/s  {duration((self.steps - self.step) * pace)} left"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(75), duration(7322)
    ('1:15', '2:02:02')
    """
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"
