"""Draws how runs converge: the paper's convergence figure, with a band over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epitomic.analysis.convergence import AGAINST, METRICS, Curve, curves
from epitomic.support.errors import unknown
from epitomic.training.run_folder import RunFolder
from epitomic.visualisation.style import LIGHT, Theme, drawing, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = Sequence[float] | NDArray[np.float64]
Band = tuple[Values, Values]  # lowest and highest

SCALES = ("auto", "linear", "log")
WIDE = 600  # pixels from which a figure has room for a sentence
BAND = "Lines are means over seeds. Bands show the lowest and highest seed."


def curves_figure(
    runs: Sequence[RunFolder],
    *,
    metric: str = "val_error",
    against: str = "epochs",
    scale: str = "auto",
    every_run: bool = False,
    theme: Theme = LIGHT,
    size: tuple[int, int] = (820, 500),
) -> Figure:
    """Draws a line for each network: its mean over seeds, with a band from the lowest to the highest seed.

    Args:
        runs: Any runs, finished or not.
        metric: One of `METRICS`.
        against: ``"epochs"``, ``"seconds"`` or ``"core-seconds"``.
        scale: Scale of the error: ``"linear"``, ``"log"``, or ``"auto"``, which is log if the error spans more than a
            factor of 8.
        every_run: Whether to draw a thin line for each run instead, which shows how much single runs fluctuate.
        theme: Colours.
        size: Width and height in pixels.
    """
    found = curves(runs, metric=metric, against=against)
    with drawing(theme):
        from matplotlib.ticker import MaxNLocator

        figure = new_figure(*size)
        axes = figure.add_subplot()
        percent = metric.endswith("error")
        factor = 100.0 if percent else 1.0
        everything = np.concatenate([factor * curve.values.ravel() for curve in found])
        floor = set_scale(axes, everything[np.isfinite(everything)], scale, percent=percent)
        for number, curve in enumerate(found):
            if every_run:
                _draw_runs(axes, theme, number, curve, np.maximum(floor, factor * curve.values))
                continue
            mean, *band = (np.maximum(floor, factor * line) for line in (curve.mean, *curve.band))
            draw_line(axes, theme, number, curve.x, mean, (band[0], band[1]), curve.label, marked=len(curve.x) < 15)
        axes.set_xlabel(AGAINST[against])
        axes.set_ylabel(METRICS[metric] + (" (%)" if percent else ""))
        if against == "epochs":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(x=0.02)
        banded = any(len(curve.values) > 1 for curve in found)
        if len(found) > 1 or banded or size[0] > WIDE:
            explained = banded and size[0] > WIDE and not every_run
            add_legend(axes, "upper right", meaning=BAND if explained else None)
        figure.set_layout_engine("constrained")
    return figure


def _draw_runs(axes: Axes, theme: Theme, number: int, curve: Curve, values: NDArray[np.float64]) -> None:
    """Draws a thin line for each run of network ``number``."""
    colour, style = theme.line(number)
    for line, run in enumerate(values):
        axes.plot(curve.x, run, style, color=colour, linewidth=1.3, label=None if line else curve.label)
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)


def draw_line(
    axes: Axes, theme: Theme, number: int, x: Values, mean: Values, band: Band, label: str, *, marked: bool = True
) -> None:
    """Draws the line of network ``number``, with its band if the band has a width."""
    colour, style = theme.line(number)
    marker = "o" if marked else ""
    axes.plot(x, mean, style, marker=marker, markersize=4, color=colour, linewidth=2, label=label)
    if not np.array_equal(*band):
        axes.fill_between(x, *band, color=colour, alpha=0.18, linewidth=0)
    axes.grid(True, axis="y")  # without True, a second call would switch it off
    axes.set_axisbelow(True)


def add_legend(axes: Axes, place: Any, *, meaning: str | None) -> None:
    """Adds the legend, which also says what the bands mean."""
    axes.legend(loc=place, handlelength=1.6, title=meaning, alignment="left")


def set_scale(axes: Axes, values: NDArray[np.float64], scale: str, *, percent: bool) -> float:
    """Sets a linear scale from zero, or a logarithmic one with plain numbers.

    If some values are zero, the lowest tick of the logarithmic scale stands for zero.

    Returns:
        Where zero is drawn.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if scale not in SCALES:
        raise unknown("--scale", scale, SCALES)
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
