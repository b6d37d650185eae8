"""Error over a training, for any set of runs: the paper's convergence figure, with a band over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epitomic.errors import UserError, unknown
from epitomic.visualisation.runs import RunView, group_key, labels
from epitomic.visualisation.style import LIGHT, Theme, drawing, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = {
    "val_error": "validation error",
    "train_error": "training error",
    "val_loss": "validation loss",
    "train_loss": "training loss",
}
AGAINST = {
    "epochs": "epochs",
    "seconds": "seconds of training",
    "core-seconds": "core seconds of the training process",
}


@dataclass(frozen=True)
class Curve:
    """One line of the figure: runs that differ in their seed alone.

    Attributes:
        label: For the legend.
        x: Epochs done, or seconds, or core seconds, (T,).
        values: One row a run, (runs, T).
    """

    label: str
    x: NDArray[np.float64]
    values: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Over the runs, (T,)."""
        return self.values.mean(0)

    @property
    def band(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least and the largest of the runs, each (T,)."""
        return self.values.min(0), self.values.max(0)

    @property
    def rises(self) -> float:
        """All that a run's curve goes up from one epoch to the next, mean over the runs: how much it fluctuates."""
        return float(np.diff(self.values, axis=1).clip(min=0).sum(1).mean())


def curves(runs: Sequence[RunView], *, metric: str = "val_error", against: str = "epochs") -> list[Curve]:
    """The curves of all runs that have at least one epoch, seeds together.

    Runs of different lengths are compared as far as the shortest goes.

    Args:
        runs: Any runs, finished or not.
        metric: One of `METRICS`.
        against: ``"epochs"``, or ``"seconds"`` of training, or ``"core-seconds"`` of finished runs, which do not
            depend as much on what else the machine was doing; each epoch is given an equal part of them. An epoch of
            several seeds stands at the mean of their times.

    Raises:
        UserError: If no run has an epoch yet, or a name is not there.
    """
    if metric not in METRICS:
        raise unknown("--metric", metric, METRICS)
    if against not in AGAINST:
        raise unknown("--against", against, AGAINST)
    begun = [run for run in runs if run.metrics]
    if not begun:
        names = ", ".join(str(run.folder) for run in runs)
        if not any(run.recipe for run in runs):
            raise UserError(f"only a run folder has curves, and here are weights alone, no metrics.csv: {names}")
        raise UserError(f"no epoch is over yet in {names}: metrics.csv is not there or empty")
    groups: dict[str, list[RunView]] = {}
    for run in begun:
        groups.setdefault(group_key(run), []).append(run)
    names_of = dict(zip((str(r.folder) for r in begun), labels(begun), strict=True))
    found = []
    for members in groups.values():
        lines = [_line(run, metric, against) for run in members]
        label = names_of[str(members[0].folder)]
        if len(members) > 1:
            seeds = len({run.seed for run in members}) == len(members)
            label += f" ({len(members)} {'seeds' if seeds else 'runs'})"
        found.append(_join(label, lines))
    return found


def _line(run: RunView, metric: str, against: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if metric not in run.metrics[0]:
        raise UserError(f"{run.folder / 'metrics.csv'} has no column {metric!r}")
    values = np.array([row[metric] for row in run.metrics])
    x = _epoch_ends(run, against)
    return x[: len(values)], values[: len(x)]


def _epoch_ends(run: RunView, against: str) -> NDArray[np.float64]:
    if against == "seconds":
        return epoch_seconds(run)
    epochs = np.arange(1.0, len(run.metrics) + 1)
    if against == "epochs":
        return epochs
    results: dict[str, Any] = run.results or {}
    if "cpu_seconds" not in results:
        raise UserError(f"{run.folder} has no core seconds, as it is not finished; use --against epochs")
    return epochs * float(results["cpu_seconds"]) / float(results["epochs"])


def _join(label: str, lines: list[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Curve:
    """Epoch by epoch, so that the last point is the mean of the runs' ends however long each took."""
    count = min(len(x) for x, _ in lines)
    x, values = (np.stack([line[axis][:count] for line in lines]) for axis in (0, 1))  # (runs, epochs)
    return Curve(label, x.mean(0), values)


def epoch_seconds(run: RunView) -> NDArray[np.float64]:
    """Seconds of training at the end of each epoch, (epochs,).

    From the run's TensorBoard log; where there is none, each epoch is given an equal part of the wall time.
    """
    logged = _logged_seconds(run.folder / "tensorboard")
    if len(logged) >= len(run.metrics) > 0:
        return logged[: len(run.metrics)]
    results: dict[str, Any] = run.results or {}
    if "epoch_seconds" in results:
        return np.arange(1.0, len(run.metrics) + 1) * float(results["epoch_seconds"])
    raise UserError(f"{run.folder} has no times: no tensorboard folder and no results.json; use --against epochs")


def _logged_seconds(folder: Path) -> NDArray[np.float64]:
    if not folder.is_dir():
        return np.empty(0)
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        found = events.Scalars("seconds") if "seconds" in events.Tags()["scalars"] else []
    except Exception:  # a damaged log is no reason to show no curve
        return np.empty(0)
    by_step = {event.step: event.value for event in found}  # a resumed run may have written a step twice
    return np.array([by_step[step] for step in sorted(by_step)], dtype=np.float64)


def curves_figure(
    runs: Sequence[RunView],
    *,
    metric: str = "val_error",
    against: str = "epochs",
    scale: str = "auto",
    theme: Theme = LIGHT,
    size: tuple[int, int] = (820, 500),
) -> Figure:
    """The figure: a line per network, its mean over seeds, a band from the least to the largest.

    Args:
        runs: Any runs, finished or not.
        metric: One of `METRICS`.
        against: ``"epochs"``, ``"seconds"`` or ``"core-seconds"``.
        scale: Of the error: ``"linear"``, ``"log"``, or ``"auto"``: log where it spans more than a factor of 8.
        theme: Colours.
        size: Pixels at 100 an inch.
    """
    found = curves(runs, metric=metric, against=against)
    with drawing(theme):
        from matplotlib.ticker import MaxNLocator

        figure = new_figure(*size)
        axes = figure.add_subplot()
        percent = metric.endswith("error")
        factor = 100.0 if percent else 1.0
        everything = np.concatenate([factor * c.values.ravel() for c in found])
        floor = set_scale(axes, everything[np.isfinite(everything)], scale, percent=percent)
        for number, curve in enumerate(found):
            colour, style = theme.line(number)
            marker = "o" if len(curve.x) < 15 else ""
            low, high = (np.maximum(floor, factor * edge) for edge in curve.band)
            mean = np.maximum(floor, factor * curve.mean)
            axes.plot(curve.x, mean, style, marker=marker, markersize=4, color=colour, linewidth=2, label=curve.label)
            if len(curve.values) > 1:
                axes.fill_between(curve.x, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.set_xlabel(AGAINST[against])
        axes.set_ylabel(METRICS[metric] + (" (%)" if percent else ""))
        if against == "epochs":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(x=0.02)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        if len(found) > 1 or len(found[0].values) > 1:
            axes.legend(loc="upper right", handlelength=1.6)
        figure.set_layout_engine("constrained")
    return figure


def set_scale(axes: Axes, values: NDArray[np.float64], scale: str, *, percent: bool) -> float:
    """A linear scale from zero, or a logarithmic one with plain numbers, whose lowest tick stands for zero if need be.

    Returns:
        Where zero is drawn.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if scale not in ("auto", "linear", "log"):
        raise unknown("--scale", scale, ("auto", "linear", "log"))
    positive = values[values > 0]
    spans = len(positive) > 0 and positive.max() / positive.min() > 8
    if len(positive) and (scale == "log" or (scale == "auto" and spans)):
        zero = float(positive.min()) / 1.8 if len(positive) < len(values) else 0.0
        low, high = zero or positive.min() / 1.25, positive.max() * 1.25
        if percent:
            high = min(high, 110.0)
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        steps = [m * 10.0**e for e in range(-6, 5) for m in (1, 2, 5)]
        ticks = [s for s in steps if (1.4 * low if zero else low) <= s <= high]
        axes.yaxis.set_major_locator(FixedLocator([zero, *ticks] if zero else ticks))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: "0" if value == zero else f"{value:g}"))
        return zero
    if len(values):
        axes.set_ylim(0, max(values.max() * 1.08, 1e-6))
    return 0.0
