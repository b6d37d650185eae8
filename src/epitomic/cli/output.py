"""What the commands that draw share: where a picture goes, and a line that says what is being done."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from epitomic.models.pretrained import SHIPPED, find_pretrained


@contextlib.contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Gives a function that shows what is being done: on one line of the terminal, empty again at the end."""
    terminal = sys.stderr.isatty()

    def tell(text: str) -> None:
        if terminal:
            print(f"{text:<60}\r", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        tell("")


def output_stem(runs: list[str], name: str) -> Path:
    """Where a picture goes if the user does not say: into the run's folder, or here if there are several runs."""
    return output_folder(runs[0]) / name if len(runs) == 1 else Path(name)


def output_folder(run: str) -> Path:
    """Where what is made of a run goes: into its folder, or here if its weights ship with the package."""
    folder = find_pretrained(run)
    return Path() if folder.parent == SHIPPED else folder
