"""How the error grows when the test images are shifted, and how often the prediction changes.

The epitomic layer exists to make this error grow slowly. A shift moves an image by whole pixels. The pixels that come
in at the border repeat the nearest pixel of the image, so that a dark background stays dark. Each shift is tried in
four directions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from epitomic.analysis.error_rates import wilson
from epitomic.data.small.splits import Split
from epitomic.data.small.views import plain_batches
from epitomic.evaluation import score
from epitomic.support.console import Tell, tell_nobody
from epitomic.support.errors import UserError
from epitomic.training.run_folder import RunFolder

DIRECTIONS = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}  # name -> (down, right)


@dataclass(frozen=True)
class ShiftRow:
    """One network on the test images, all shifted by the same number of pixels in the same direction.

    Attributes:
        dataset: Name of the image set.
        model: Name of the network.
        seed: Seed of the training.
        run: Path of the run folder.
        shift: Shift in pixels.
        direction: ``"left"``, ``"right"``, ``"up"``, ``"down"``, or ``"none"`` for the images as they are.
        images: Number of test images.
        errors: Number of images that are classified wrongly.
        error: Share of images that are classified wrongly.
        changed: Share of images whose predicted class differs from that of the unshifted image.
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
    """Moves images (N, C, H, W) by whole pixels; the border repeats.

    >>> shift_images(torch.tensor([[[[1, 2, 3]]]]), 0, 1)
    tensor([[[[1, 1, 2]]]])
    """
    height, width = images.shape[-2:]
    rows = (torch.arange(height) - down).clamp(0, height - 1)
    columns = (torch.arange(width) - right).clamp(0, width - 1)
    return images[..., rows, :][..., columns]


def measure_shifts(
    run: RunFolder, *, maximum: int = 6, step: int = 1, images: int | None = None, tell: Tell = tell_nobody
) -> list[ShiftRow]:
    """Measures error and changed predictions of one run, for shifts of 0 to ``maximum`` pixels in each direction.

    Args:
        run: A run with weights, whose test images are on this machine.
        maximum: Largest shift in pixels.
        step: Pixels from one shift to the next.
        images: Number of test images, the first ones. None takes all.
        tell: Called with the progress.
    """
    tell(f"{run.name}: reading the test images", 0)
    test = run.test
    size = test.images.shape[-1]
    if not 1 <= maximum < size:
        raise UserError(f"--shifts must be from 1 to {size - 1} pixels, got {maximum}")
    if images is not None and images < 1:
        raise UserError(f"--images must be at least 1, got {images}")
    if images is not None:
        test = Split(test.images[:images], test.labels[:images])
    plain: Tensor | None = None
    rows: list[ShiftRow] = []
    shifts = [(0, "none"), *((shift, name) for shift in range(step, maximum + 1, step) for name in DIRECTIONS)]
    for shift, direction in shifts:
        tell(f"{run.name}: measuring robustness, shift {shift} of {maximum}", len(rows) / len(shifts))
        down, right = DIRECTIONS.get(direction, (0, 0))
        moved = Split(shift_images(test.images, shift * down, shift * right), test.labels)
        predicted = score(run.model, plain_batches(moved, run.standardize)).scores.argmax(1)
        plain = predicted if plain is None else plain
        errors = int((predicted != test.labels).sum())
        rows.append(
            ShiftRow(
                dataset=run.dataset,
                model=run.model_name,
                seed=run.seed,
                run=str(run.folder),
                shift=shift,
                direction=direction,
                images=len(test),
                errors=errors,
                error=errors / len(test),
                changed=float((predicted != plain).double().mean()),
            )
        )
    return rows


def mean_by_shift(rows: Iterable[ShiftRow], value: str = "error") -> dict[int, list[float]]:
    """Averages over the directions. Maps each shift to a list with one mean per run.

    Args:
        rows: Rows of one run or of several.
        value: ``"error"`` or ``"changed"``.
    """
    runs: dict[int, dict[str, list[float]]] = {}
    for row in rows:
        runs.setdefault(row.shift, {}).setdefault(row.run, []).append(getattr(row, value))
    return {shift: [float(np.mean(v)) for v in by_run.values()] for shift, by_run in sorted(runs.items())}


@dataclass(frozen=True)
class Spread:
    """A figure at one shift, and how sure it is.

    Attributes:
        mean: Mean over directions and runs.
        low: Lowest run; of one run alone, the lower end of the 95 % interval.
        high: Highest run; of one run alone, the upper end of the 95 % interval.
    """

    mean: float
    low: float
    high: float


def spread_by_shift(rows: Iterable[ShiftRow], value: str = "error") -> dict[int, Spread]:
    """The mean at each shift, with the range of several runs, or with the 95 % interval of one run.

    The interval counts each image once: the same images moved in four directions are not four times as many.

    Args:
        rows: Rows of one run or of several.
        value: ``"error"`` or ``"changed"``.
    """
    rows = list(rows)
    images = {row.shift: row.images for row in rows}
    found = {}
    for shift, values in mean_by_shift(rows, value).items():
        low, high = min(values), max(values)
        if len(values) == 1 and (shift or value == "error"):  # without a shift, no prediction can change
            low, high = wilson(round(values[0] * images[shift]), images[shift])
        found[shift] = Spread(float(np.mean(values)), low, high)
    return found
