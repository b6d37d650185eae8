"""Collects what the report shows of one run, and notes what it cannot show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from epitomic.analysis.data_check import DataCheck, check_if_possible
from epitomic.analysis.layer_times import LayerTime, time_layers
from epitomic.analysis.learning_curve import Point, read_learning_curve
from epitomic.analysis.matches import epitomic_layers, first_match, match_layers
from epitomic.analysis.mistakes import Mistake, mistaken_images, score_test_images, surest_mistakes
from epitomic.analysis.names import own_names
from epitomic.analysis.patches import ExcitingPatches, exciting_patches
from epitomic.analysis.positions import PositionUse, position_use
from epitomic.analysis.receptive_fields import convolutional_layers
from epitomic.analysis.reconstruction import SHOWN, Reconstruction, reconstruct
from epitomic.analysis.robustness import ShiftRow, measure_shifts
from epitomic.data.small.splits import Split
from epitomic.support.console import Tell, tell_nobody
from epitomic.support.errors import UserError
from epitomic.training.run_folder import RunFolder

SMALL = 64  # pixels; small images are cheap, so the report looks at many of them
REBUILT = 6  # images that are rebuilt


@dataclass
class Findings:
    """What the report shows of one run. What is not known stays None, 0 or empty.

    Attributes:
        run: The run.
        notes: Sentences on what is missing and how to get it.
        images: Number of test images that were searched for mistakes.
        all_images: Number of images in the whole test set.
        confusion: Number of images by true class (row) and predicted class (column).
        mistakes: The mistakes that the network is surest about, the surest first.
        mistaken: Images of the mistakes as bytes, (C, H, W) each; None if no image was looked at.
        mistaken_names: Paths or numbers of these images.
        data: What the images of all splits have that can be mended; None if it is not known.
        learning: Test error by the share of the training images; empty unless that was measured.
        positions: How often each position wins in each epitomic layer.
        position_images: Number of images that ``positions`` were counted over.
        shifts: Errors on shifted images.
        originals: Images that were rebuilt, as bytes, (N, C, H, W).
        original_labels: Class numbers of the originals.
        rebuilt: The originals rebuilt from 1 match, from 4 matches and from all matches.
        patches: Patches that excite each layer after the first.
        times: How long each layer takes.
        batch: Number of images in the batch that was timed.
    """

    run: RunFolder
    notes: list[str] = field(default_factory=list)
    images: int = 0
    all_images: int = 0
    confusion: list[list[int]] | None = None
    mistakes: list[Mistake] = field(default_factory=list)
    mistaken: list[Tensor] | None = None
    mistaken_names: list[str] = field(default_factory=list)
    data: DataCheck | None = None
    learning: list[Point] = field(default_factory=list)
    positions: list[PositionUse] = field(default_factory=list)
    position_images: int = 0
    shifts: list[ShiftRow] = field(default_factory=list)
    originals: Tensor | None = None
    original_labels: list[int] = field(default_factory=list)
    rebuilt: list[Reconstruction] = field(default_factory=list)
    patches: list[ExcitingPatches] = field(default_factory=list)
    times: list[LayerTime] = field(default_factory=list)
    batch: int = 0


def collect(run: RunFolder, *, images: int = 1000, robustness: bool = True, tell: Tell = tell_nobody) -> Findings:
    """Measures everything that the report shows of a run.

    Args:
        run: A run, finished or not. A note says what is missing.
        images: Largest number of test images to look at.
        robustness: Whether to measure shifted images, which takes most of the time.
        tell: Called with the progress.
    """
    results: dict[str, Any] = (run.results or {}).get("test", {})
    found = Findings(run, notes=_notes(run), confusion=results.get("confusion"), learning=read_learning_curve(run))
    tell(f"{run.name}: reading the test images", 0)
    try:
        model, test = run.model, run.test
    except UserError as error:
        waiting = run.config is not None or not run.finished  # the weights are here, or still to come
        again = f". Then write this page again: epitomic report {run.folder}" if waiting else ""
        found.notes.append(f"{error}{again}")
        return found
    if not epitomic_layers(model):
        found.notes.append(f"{run.model_name} has no epitomic layer: there are no positions and no matches to show.")

    tell(f"{run.name}: classes", 0.05)
    size = test.images.shape[-1]
    small = size <= SMALL
    opened = run.open_test_images()
    tested = score_test_images(model, opened, images)
    found.images, found.all_images = len(tested.numbers), run.test_count
    if found.confusion is None:
        found.confusion = tested.scores.confusion(len(run.classes)).tolist()
    found.mistakes = surest_mistakes(tested.scores)
    numbers, names = [tested.numbers[m.index] for m in found.mistakes], own_names(run).get("test", ())
    found.mistaken, found.mistaken_names = mistaken_images(opened, numbers, names)

    images = max(1, min(images, len(test), images if small else 400))
    seen = Split(test.images[:images], test.labels[:images])
    tell(f"{run.name}: positions and patches", 0.15)
    few = min(images, 500 if small else 60)
    if epitomic_layers(model):
        batches = (run.to_input(batch) for batch in seen.images[:few].split(100))
        found.positions, found.position_images = position_use(model, batches), few
    for name, _ in convolutional_layers(model)[1:]:
        found.patches.append(exciting_patches(run, seen.images[:few], name, units=16))
    _rebuild(found, seen)

    tell(f"{run.name}: time of each layer", 0.3)
    found.batch = min(few, 64 if small else 8)
    found.times = time_layers(model, run.to_input(seen.images[: found.batch]))
    tell(f"{run.name}: near-copies", 0.35)
    found.data, note = check_if_possible(run, lambda text, share: tell(text, 0.35 + 0.15 * share))
    if note:
        found.notes.append(note)
    if robustness:
        found.shifts = measure_shifts(  # large images take longer, so there are fewer shifts of them
            run,
            maximum=min(6, size // 3),
            step=1 if small else 2,
            images=images,
            tell=lambda text, share: tell(text, 0.5 + 0.5 * share),
        )
    return found


def _notes(run: RunFolder) -> list[str]:
    """What the state of the run says about the report."""
    if run.recipe and not run.finished:
        epochs = run.recipe.get("epochs", "?")
        return [
            f"This run is not finished: {len(run.metrics)} of {epochs} epochs are done. "
            f"Continue it with: epitomic train --resume --out {run.folder}"
        ]
    if run.finished and "test" not in (run.results or {}):
        return ["The training did not use the test images (--no-test). This page does."]
    return []


def _rebuild(found: Findings, seen: Split) -> None:
    """Rebuilds the first image of each of the first classes."""
    run = found.run
    firsts = [int((seen.labels == label).nonzero()[0]) for label in seen.labels.unique().tolist()][:REBUILT]
    chosen = seen.images[firsts]
    _, matches = match_layers(run.model, run.to_input(chosen))
    match = first_match(matches)
    if match is not None:
        found.originals, found.original_labels = chosen, seen.labels[firsts].tolist()
        found.rebuilt = [reconstruct(match, matches=count) for count in SHOWN]
