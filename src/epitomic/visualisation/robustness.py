"""Error against the shift of the test images, and how often the prediction changes.

The property the layer exists for. A shift moves the picture by whole pixels; the pixels that come in at the border
repeat the nearest one of the image, so that a dark background stays dark. Each size of shift is tried in the four
directions.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from epitomic.data import Split
from epitomic.data.memory import plain_batches
from epitomic.errors import UserError
from epitomic.evaluation import score
from epitomic.files import write_text
from epitomic.visualisation.curves import set_scale
from epitomic.visualisation.runs import RunView, labels
from epitomic.visualisation.style import LIGHT, Theme, drawing, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 6  # pixels
DIRECTIONS = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}


@dataclass(frozen=True)
class ShiftRow:
    """One network on the test images shifted by so many pixels in one direction.

    Attributes:
        dataset: Whose test set.
        model: The network.
        seed: Of its training.
        run: Its folder.
        shift: Pixels.
        direction: ``"left"``, ``"right"``, ``"up"``, ``"down"``, or ``"none"`` for the images as they are.
        images: How many.
        errors: How many are classified wrongly.
        error: The share of them.
        changed: Share of images whose predicted class is not that of the image as it is.
    """

    dataset: str
    model: str
    seed: int
    run: str
    shift: int
    direction: str
    images: int
    errors: int
    error: float
    changed: float


def shift_images(images: Tensor, down: int, right: int) -> Tensor:
    """(N, C, H, W) moved by whole pixels; the border repeats.

    >>> shift_images(torch.tensor([[[[1, 2, 3]]]]), 0, 1)
    tensor([[[[1, 1, 2]]]])
    """
    height, width = images.shape[-2:]
    rows = (torch.arange(height) - down).clamp(0, height - 1)
    columns = (torch.arange(width) - right).clamp(0, width - 1)
    return images[..., rows, :][..., columns]


def measure_shifts(
    run: RunView,
    *,
    most: int = MOST,
    images: int | None = None,
    progress: Callable[[str], object] | None = None,
) -> list[ShiftRow]:
    """Error and changed predictions of one run, for shifts of 0 to ``most`` pixels in each direction.

    Args:
        run: A run with weights, whose images are here.
        most: The largest shift.
        images: How many test images, the first ones; None: all.
        progress: Is told what is being done.
    """
    test = run.test
    size = test.images.shape[-1]
    if not 1 <= most < size:
        raise UserError(f"--shifts must be from 1 to {size - 1} pixels, got {most}")
    if images is not None and images < 1:
        raise UserError(f"--images must be at least 1, got {images}")
    if images is not None:
        test = Split(test.images[:images], test.labels[:images])
    plain: Tensor | None = None
    rows = []
    for shift, direction in [(0, "none"), *((s, d) for s in range(1, most + 1) for d in DIRECTIONS)]:
        if progress:
            progress(f"{run.name}: shift {shift}/{most}")
        down, right = DIRECTIONS.get(direction, (0, 0))
        moved = Split(shift_images(test.images, shift * down, shift * right), test.labels)
        predicted = score(run.model, plain_batches(moved, run.standardize)).scores.argmax(1)
        plain = predicted if plain is None else plain
        errors = int((predicted != test.labels).sum())
        changed = float((predicted != plain).double().mean())
        rows.append(
            ShiftRow(
                run.dataset, run.model_name, run.seed, str(run.folder), shift, direction, len(test), errors,
                errors / len(test), changed,
            )
        )  # fmt: skip
    return rows


def summarize(rows: Iterable[ShiftRow], value: str = "error") -> dict[int, list[float]]:
    """Shift -> one mean over directions per run."""
    runs: dict[int, dict[str, list[float]]] = {}
    for row in rows:
        runs.setdefault(row.shift, {}).setdefault(row.run, []).append(getattr(row, value))
    return {shift: [float(np.mean(v)) for v in by_run.values()] for shift, by_run in sorted(runs.items())}


def grouped(runs: Sequence[RunView], measured: Sequence[list[ShiftRow]]) -> dict[str, list[ShiftRow]]:
    """The rows by label, seeds of one network together."""
    groups: dict[str, list[ShiftRow]] = {}
    for label, rows in zip(labels(runs), measured, strict=True):
        groups.setdefault(label, []).extend(rows)
    return groups


def by_network(rows: Sequence[ShiftRow]) -> dict[str, list[ShiftRow]]:
    """The rows by network, and by image set where there are several.

    Also by the folder that the runs lie in, where there are several, as they may be of several recipes; and by run,
    where one seed has several.
    """
    several = len({row.dataset for row in rows}) > 1
    groups: dict[str, list[ShiftRow]] = {}
    for row in rows:
        groups.setdefault(f"{row.model}, {row.dataset}" if several else row.model, []).append(row)
    found: dict[str, list[ShiftRow]] = {}
    for label, group in groups.items():
        runs = {row.run: row.seed for row in group}
        folders = {run: Path(run).parent.as_posix() for run in runs}
        alone = len({(folders[run], seed) for run, seed in runs.items()}) < len(runs)
        for row in group:
            where = row.run if alone else folders[row.run] if len(set(folders.values())) > 1 else ""
            found.setdefault(f"{label} ({where})" if where else label, []).append(row)
    return found


def _label(label: str, rows: Iterable[ShiftRow]) -> str:
    """With the number of seeds, where there are several."""
    count = len({row.run for row in rows})
    return f"{label} ({count} seeds)" if count > 1 else label


def robustness_table(groups: dict[str, list[ShiftRow]]) -> str:
    """Means over directions and seeds, for the eye; with several seeds, the least and the largest in brackets."""
    groups = {_label(label, rows): rows for label, rows in groups.items()}
    shifts = sorted({row.shift for rows in groups.values() for row in rows})
    width = max(len(label) for label in groups) + 2
    lines = []
    for value, title in (("error", "error, %, at a shift of so many pixels"), ("changed", "predictions changed, %")):
        lines.append(title)
        cells = {label: [_cell(v) for v in summarize(rows, value).values()] for label, rows in groups.items()}
        size = max(len(c) for row in cells.values() for c in row) + 2
        lines.append(" " * width + "".join(str(s).rjust(size) for s in shifts))
        lines += [label.ljust(width) + "".join(c.rjust(size) for c in row) for label, row in cells.items()]
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    text = f"{100 * np.mean(values):.2f}"
    return text if len(values) == 1 else f"{text} ({100 * min(values):.2f}-{100 * max(values):.2f})"


def save_rows(rows: Iterable[ShiftRow], path: Path) -> None:
    """Writes all rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [f.name for f in fields(ShiftRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    write_text(path, text.getvalue())


def read_rows(path: Path) -> list[ShiftRow]:
    """What `save_rows` wrote.

    Raises:
        UserError: If it is something else.
    """
    kinds = {"int": int, "float": float, "str": str}  # as the fields are annotated
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        return [ShiftRow(**{f.name: kinds[str(f.type)](row[f.name]) for f in fields(ShiftRow)}) for row in table]
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = f"it has no column {error}" if isinstance(error, KeyError) else error
        raise UserError(
            f"cannot read {path}, which is to hold rows that `epitomic robustness` wrote: {reason}"
        ) from None


def check_alike(
    rows: Sequence[ShiftRow], runs: Sequence[RunView], *, most: int, images: int | None, path: Path
) -> None:
    """Raises a `UserError` if rows of these runs would not stand beside the ones that ``path`` has."""
    if not rows:
        return
    kept = (max(row.shift for row in rows), rows[0].images)
    sizes = [len(run.test) for run in runs] or [kept[1]]
    for size in sizes if images is None else [min(images, size) for size in sizes]:
        if (most, size) != kept:
            raise UserError(
                f"{path} has shifts of up to {kept[0]} pixels of {kept[1]} images, and this would be of up to {most} "
                f"pixels of {size}: name another --out"
            )


def robustness_figure(
    groups: dict[str, list[ShiftRow]], *, theme: Theme = LIGHT, size: tuple[int, int] = (980, 420)
) -> Figure:
    """Error and changed predictions against the shift: means over directions, a band over seeds.

    Args:
        groups: Label -> rows, of one run or of several seeds.
        theme: Colours.
        size: Pixels at 100 an inch; the two panels are side by side, or one above the other if it is high.
    """
    with drawing(theme):
        figure = new_figure(*size)
        stacked = size[1] > size[0]
        panels: Any = figure.subplots(2 if stacked else 1, 1 if stacked else 2)
        for axes, value, title in zip(
            panels, ("error", "changed"), ("error (%)", "predictions changed (%)"), strict=True
        ):
            everything = []
            for number, (label, rows) in enumerate(groups.items()):
                colour, style = theme.line(number)
                points = summarize(rows, value)
                shifts = list(points)
                mean = [100 * float(np.mean(v)) for v in points.values()]
                axes.plot(
                    shifts, mean, style, marker="o", markersize=4, color=colour, linewidth=2, label=_label(label, rows)
                )
                low, high = ([100 * f(v) for v in points.values()] for f in (min, max))
                if max(map(len, points.values())) > 1:
                    axes.fill_between(shifts, low, high, color=colour, alpha=0.18, linewidth=0)
                everything += high
            set_scale(axes, np.array(everything), "linear", percent=True)
            axes.set_xticks(sorted({row.shift for rows in groups.values() for row in rows}))
            axes.set_xlabel("shift (pixels)")
            axes.set_title(title, loc="left", weight="bold")
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        if len(groups) > 1:
            panels[0].legend(loc="upper left", handlelength=1.6)
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.08)
    return figure
