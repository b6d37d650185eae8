"""Where a command writes what it made of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from epitomic.models.pretrained import SHIPPED, find_pretrained

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def output_stem(runs: list[str], name: str) -> Path:
    """Default place of a picture: the folder of a single run, or this folder if there are several runs."""
    return output_folder(runs[0]) / name if len(runs) == 1 else Path(name)


def output_folder(run: str) -> Path:
    """Default place of the results of a run: its folder, or this folder if the package ships its weights."""
    folder = find_pretrained(run)
    return Path() if folder.parent == SHIPPED else folder


def write_figure(figure: Figure, stem: str | Path) -> None:
    """Writes a picture as PNG and SVG, and prints the names of the files."""
    from epitomic.visualisation.style import save_figure

    for file in save_figure(figure, stem):
        print(f"wrote {file}")
