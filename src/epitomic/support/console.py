"""Writes what a person sees on the terminal: progress, tables, durations and percentages.

Tables are plain text, not rich's: they look the same in a log, and commands that need only torch can print them.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self  # Python 3.11

LINE_EVERY = 30.0  # seconds between plain lines
REFRESH = 0.2  # seconds between updates of the live line

# A long job calls this with what it is doing and the share of its work that is done, such as 0.5.
# `Progress(1).update` fits.
Tell = Callable[[str, float], object]


def tell_nobody(text: str, share: float) -> None:
    """Ignores progress."""


def tell_part(tell: Tell, number: int, count: int) -> Tell:
    """Returns a `Tell` for one of ``count`` jobs that take about equally long; ``number`` counts from 0."""
    return lambda text, share: tell(text, (number + share) / count)


class Progress:
    """Shows how far a job is: a live line on a terminal, a plain line now and then elsewhere.

    Use it as a context manager. Without ``total`` it shows the text alone, without a bar and without time left. The
    live line needs rich; without rich the lines are plain.

    Args:
        total: Units of work in the whole job, or None if unknown.
        done: Units that were done before this session. The speed leaves them out.
        unit: Name of a unit of work for the speed, such as ``"images"``. None shows no speed.
        scale: How many of ``unit`` make one unit of work, such as the number of images in a step.
        quiet: Whether to show nothing.
        stream: Where to write (default: standard error).
    """

    def __init__(
        self,
        total: float | None = None,
        *,
        done: float = 0,
        unit: str | None = None,
        scale: float = 1,
        quiet: bool = False,
        stream: Any = None,
    ) -> None:
        self.total, self.first, self.done = total, done, done
        self.unit, self.scale, self.quiet = unit, scale, quiet
        self.stream = stream or sys.stderr
        self.began = self.shown = time.monotonic()  # `shown`: when a line was last written
        self.bar: Any = None
        if not quiet and self.stream.isatty() and importlib.util.find_spec("rich"):
            self.bar = self._live_bar()

    def _live_bar(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = [TextColumn("{task.description}", markup=False), TextColumn("{task.fields[pace]}")]
        if self.total is not None:
            columns.insert(1, BarColumn(bar_width=24))  # type: ignore[arg-type]
        bar = Progress(*columns, console=Console(file=self.stream), refresh_per_second=5, transient=True)
        self.task = bar.add_task("", total=self.total, completed=int(self.done), pace="")
        return bar

    def __enter__(self) -> Self:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def update(self, text: str, done: float | None = None) -> None:
        """Shows what is being done, and that ``done`` units are finished."""
        self.done = self.done if done is None else done
        if self.quiet:
            return
        now = time.monotonic()
        if self.bar:
            if now - self.shown > REFRESH or self.unit is None:  # jobs with a speed have many updates a second
                self.bar.update(self.task, completed=self.done, description=text, pace=self.pace())
                self.shown = now
        elif now - self.shown > LINE_EVERY:
            self.say(f"{text}  {self.pace()}".rstrip())

    def say(self, text: str) -> None:
        """Writes a line that stays."""
        self.shown = time.monotonic()
        if self.bar:
            self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
        elif not self.quiet:
            print(text, file=self.stream, flush=True)

    def pace(self) -> str:
        """Returns speed and time left, such as ``"1,200 images/s  2:05 left"``; empty before anything is done."""
        finished, seconds = self.done - self.first, time.monotonic() - self.began
        if finished <= 0 or seconds <= 0:
            return ""
        parts = [f"{self.scale * finished / seconds:,.0f} {self.unit}/s"] if self.unit else []
        if self.total is not None:
            parts.append(f"{duration((self.total - self.done) * seconds / finished)} left")
        return "  ".join(parts)


def duration(seconds: float) -> str:
    """Returns a duration as hours, minutes and seconds.

    >>> duration(75), duration(7322)
    ('1:15', '2:02:02')
    """
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


def counted(count: int, noun: str) -> str:
    """Returns a number of things.

    >>> counted(1, "image"), counted(1200, "image")
    ('1 image', '1,200 images')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def percent(share: float, digits: int = 2) -> str:
    """Returns a share of 1 as a percentage.

    >>> percent(0.0612)
    '6.12 %'
    """
    return f"{100 * share:.{digits}f} %"


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Returns a table in plain text, with columns wide enough for their cells.

    Args:
        head: Names of the columns.
        rows: Cells.
        right: Numbers of the columns that are aligned to the right.

    >>> print(text_table(["layer", "ms"], [["conv", "12.0"]], right=[1]))
    layer    ms
    -----  ----
    conv   12.0
    """
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])

    def aligned(line: list[str]) -> str:
        cells = enumerate(zip(line, widths, strict=True))
        return "  ".join(cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in cells).rstrip()

    return "\n".join(map(aligned, lines))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown.

    >>> print(markdown_table(["a", "b"], [["1", "2"]]), end="")
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
