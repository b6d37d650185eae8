"""How runs converge: error or loss by epoch or by time, with runs that differ only in their seed taken together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epitomic.support.console import Tell, tell_nobody
from epitomic.support.errors import UserError, unknown
from epitomic.training import run_folder
from epitomic.training.run_folder import RunFolder
from epitomic.training.run_names import group_key, labels

Values = NDArray[np.float64]

METRICS = {
    "val_error": "validation error",
    "val_top5_error": "validation top-5 error",
    "train_error": "training error",
    "val_loss": "validation loss",
    "train_loss": "training loss",
}
AGAINST = {
    "epochs": "epochs",
    "seconds": "seconds of training",
    "core-seconds": "core seconds of training",
}


@dataclass(frozen=True)
class Curve:
    """One line of the picture: a run, or several runs that differ only in their seed.

    Attributes:
        label: Name for the legend.
        x: Epochs, seconds or core seconds at the end of each epoch, (T,).
        values: Error or loss after each epoch, one row for each run, (runs, T).
    """

    label: str
    x: Values
    values: Values

    @property
    def mean(self) -> Values:
        """Mean over the runs, (T,)."""
        return self.values.mean(0)

    @property
    def band(self) -> tuple[Values, Values]:
        """Lowest and highest value of the runs, each (T,)."""
        return self.values.min(0), self.values.max(0)

    @property
    def rises(self) -> float:
        """Sum of all rises from one epoch to the next, averaged over the runs: how much the curve fluctuates."""
        return float(np.diff(self.values, axis=1).clip(min=0).sum(1).mean())


def curves(
    runs: Sequence[RunFolder], *, metric: str = "val_error", against: str = "epochs", tell: Tell = tell_nobody
) -> list[Curve]:
    """Reads the curves of all runs that have finished an epoch.

    Runs that differ only in their seed become one curve, which is as long as the shortest of them. Each of its epochs
    lies at the mean of their times.

    Args:
        runs: Any runs, finished or not.
        metric: One of `METRICS`.
        against: ``"epochs"``, ``"seconds"``, or ``"core-seconds"``. Core seconds depend less on what else the machine
            was doing; only finished runs have them, and each epoch gets an equal part.
        tell: Called with the progress.

    Raises:
        UserError: If no run has finished an epoch, or if ``metric`` or ``against`` is unknown.
    """
    if metric not in METRICS:
        raise unknown("--metric", metric, METRICS)
    if against not in AGAINST:
        raise unknown("--against", against, AGAINST)
    begun = [run for run in runs if run.metrics]
    if not begun:
        names = ", ".join(str(run.folder) for run in runs)
        if not any(run.recipe for run in runs):
            raise UserError(f"only a run folder has curves; these have weights but no {run_folder.METRICS}: {names}")
        raise UserError(f"no epoch is finished yet in {names}: {run_folder.METRICS} is missing or empty")
    groups: dict[str, list[RunFolder]] = {}
    for run in begun:
        groups.setdefault(group_key(run), []).append(run)
    names_of = dict(zip((str(r.folder) for r in begun), labels(begun), strict=True))
    found: list[Curve] = []
    for members in groups.values():
        label = names_of[str(members[0].folder)]
        tell(f"reading {label}", len(found) / len(groups))
        lines = [_line(run, metric, against) for run in members]
        if len(members) > 1:
            seeds = len({run.seed for run in members}) == len(members)
            label += f" ({len(members)} {'seeds' if seeds else 'runs'})"
        count = min(len(x) for x, _ in lines)
        x, values = (np.stack([line[axis][:count] for line in lines]) for axis in (0, 1))  # (runs, epochs)
        found.append(Curve(label, x.mean(0), values))
    return found


def _line(run: RunFolder, metric: str, against: str) -> tuple[Values, Values]:
    if metric not in run.metrics[0]:
        raise UserError(f"{run.folder / run_folder.METRICS} has no column {metric!r}")
    values = np.array([row[metric] for row in run.metrics])
    x = _epoch_ends(run, against)
    return x[: len(values)], values[: len(x)]


def _epoch_ends(run: RunFolder, against: str) -> Values:
    if against == "seconds":
        return epoch_seconds(run)
    epochs = np.arange(1.0, len(run.metrics) + 1)
    if against == "epochs":
        return epochs
    results: dict[str, Any] = run.results or {}
    if "cpu_seconds" not in results:
        raise UserError(f"{run.folder} has no core seconds, because it is not finished; use --against epochs")
    return epochs * float(results["cpu_seconds"]) / float(results["epochs"])


def epoch_seconds(run: RunFolder) -> Values:
    """Seconds of training at the end of each epoch, (epochs,).

    They come from the run's TensorBoard log. Without a log, each epoch gets an equal part of the wall time.
    """
    logged = _logged_seconds(run.folder / run_folder.TENSORBOARD)
    if len(logged) >= len(run.metrics) > 0:
        return logged[: len(run.metrics)]
    results: dict[str, Any] = run.results or {}
    if "epoch_seconds" in results:
        return np.arange(1.0, len(run.metrics) + 1) * float(results["epoch_seconds"])
    raise UserError(
        f"{run.folder} has no times: it has neither {run_folder.TENSORBOARD} nor {run_folder.RESULTS}; "
        "use --against epochs"
    )


def _logged_seconds(folder: Path) -> Values:
    if not folder.is_dir():
        return np.empty(0)
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        found = events.Scalars("seconds") if "seconds" in events.Tags()["scalars"] else []
    except Exception:  # a damaged log must not hide the curve
        return np.empty(0)
    by_step = {event.step: event.value for event in found}  # a resumed run may have written a step twice
    return np.array([by_step[step] for step in sorted(by_step)], dtype=np.float64)
