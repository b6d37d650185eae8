"""Gathers what a report shows of one run, and notes what it cannot show and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from epitomic.data import Split
from epitomic.data.memory import plain_batches
from epitomic.errors import UserError
from epitomic.evaluation import Scores, score
from epitomic.visualisation.matches import epitomic_layers, match_layers
from epitomic.visualisation.mistakes import Mistake, worst_mistakes
from epitomic.visualisation.patches import ExcitingPatches, exciting_patches
from epitomic.visualisation.positions import PositionUse, position_use
from epitomic.visualisation.receptive import convolutional_layers
from epitomic.visualisation.reconstruction import Reconstruction, first_match, reconstruct
from epitomic.visualisation.robustness import ShiftRow, measure_shifts
from epitomic.visualisation.runs import RunView
from epitomic.visualisation.timing import LayerTime, layer_times

SMALL = 64  # pixels up to which images are small, and cheap to run in great numbers
REBUILT = 6  # images shown rebuilt


@dataclass
class RunReport:
    """All that the page shows of one run.

    Attributes:
        run: The run.
        notes: What is missing, and how to get it.
        images: Test images looked at for the mistakes, out of so many:
        all_images: in the test set.
        confusion: Rows: the class; columns: the prediction.
        mistakes: The worst, the worst first,
        mistaken: and their images, bytes, (N, C, H, W).
        positions: Of each epitomic layer.
        position_images: Counted over so many images.
        shifts: Error against shift.
        rebuilt_from: Images, bytes, (N, C, H, W),
        rebuilt_labels: their classes,
        rebuilt: and what `reconstruct` made of them, from 1 match per patch, from 4, and from all by response.
        patches: Of each layer after the first.
        times: Of each layer.
        batch: Images in the batch that was timed.
    """

    run: RunView
    notes: list[str] = field(default_factory=list)
    images: int = 0
    all_images: int = 0
    confusion: list[list[int]] | None = None
    mistakes: list[Mistake] = field(default_factory=list)
    mistaken: Tensor | None = None
    positions: list[PositionUse] = field(default_factory=list)
    position_images: int = 0
    shifts: list[ShiftRow] = field(default_factory=list)
    rebuilt_from: Tensor | None = None
    rebuilt_labels: list[int] = field(default_factory=list)
    rebuilt: list[Reconstruction] = field(default_factory=list)
    patches: list[ExcitingPatches] = field(default_factory=list)
    times: list[LayerTime] = field(default_factory=list)
    batch: int = 0


def collect(
    run: RunView, *, images: int = 1000, robustness: bool = True, progress: Callable[[str], object] | None = None
) -> RunReport:
    """Looks at a run from all sides.

    Args:
        run: Finished or not; what is missing becomes a note.
        images: How many test images to look at, at most.
        robustness: Whether to shift images, which takes most of the time.
        progress: Is told what is being done.
    """
    report = RunReport(run)
    tell = progress or (lambda _: None)
    results: dict[str, Any] = (run.results or {}).get("test", {})
    report.confusion = results.get("confusion")
    if run.recipe and not run.finished:
        epochs = run.recipe.get("epochs", "?")
        report.notes.append(
            f"This run is not finished: {len(run.metrics)} of {epochs} epochs are done. "
            f"Go on with: epitomic train --resume --out {run.folder}"
        )
    if run.finished and not results:
        report.notes.append("The training did not look at the test images (--no-test). This page does.")
    try:
        model = run.model
        test = run.test
    except UserError as error:
        kept = run.config is not None or not run.finished  # the weights are here, or still to come
        again = f". Then write this page again: epitomic report {run.folder}"
        report.notes.append(f"{error}{again if kept else ''}")
        return report
    if not epitomic_layers(model):
        report.notes.append(f"{run.model_name} has no epitomic layer: there are no positions and no matches to show.")

    tell(f"{run.name}: classes")
    size = test.images.shape[-1]
    small = size <= SMALL
    images = max(1, min(images, len(test), images if small else 400))
    seen = Split(test.images[:images], test.labels[:images])
    scores = score(model, plain_batches(seen, run.standardize))
    report.images, report.all_images = images, run.test_images
    if report.confusion is None:
        report.confusion = _confusion(scores, len(run.classes))
    report.mistakes = worst_mistakes(scores)
    report.mistaken = seen.images[[m.index for m in report.mistakes]]

    tell(f"{run.name}: positions and patches")
    few = min(images, 500 if small else 60)
    if epitomic_layers(model):
        batches = (run.to_input(batch) for batch in seen.images[:few].split(100))
        report.positions, report.position_images = position_use(model, batches), few
    for name, _ in convolutional_layers(model)[1:]:
        report.patches.append(exciting_patches(run, seen.images[:few], name, units=16))
    _rebuild(report, seen)

    tell(f"{run.name}: time by layer")
    report.batch = min(few, 64 if small else 8)
    report.times = layer_times(model, run.to_input(seen.images[: report.batch]))
    if robustness:
        most = min(6, size // 3)
        report.shifts = measure_shifts(run, most=most, images=few, progress=progress)
    return report


def _rebuild(report: RunReport, seen: Split) -> None:
    """Rebuilds the first image of each of the first classes."""
    run = report.run
    firsts = [int((seen.labels == c).nonzero()[0]) for c in seen.labels.unique().tolist()][:REBUILT]
    chosen = seen.images[firsts]
    _, matches = match_layers(run.model, run.to_input(chosen))
    match = first_match(matches)
    if match is not None:
        report.rebuilt_from, report.rebuilt_labels = chosen, seen.labels[firsts].tolist()
        report.rebuilt = [reconstruct(match, matches=count) for count in (1, 4, None)]


def _confusion(scores: Scores, classes: int) -> list[list[int]]:
    keys = scores.labels * classes + scores.scores.argmax(1)
    return torch.bincount(keys, minlength=classes * classes).reshape(classes, classes).tolist()
