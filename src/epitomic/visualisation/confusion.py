"""Draws the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epitomic.visualisation.style import HEAT, LIGHT, Theme, drawing, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEGIBLE = 25  # largest number of classes whose matrix can be read


def confusion_figure(
    matrix: Sequence[Sequence[int]], classes: Sequence[str], *, theme: Theme = LIGHT, title: str = ""
) -> Figure:
    """Draws the confusion matrix: true classes in rows, predicted classes in columns, mistakes in colour.

    With more than `LEGIBLE` classes, it has colours alone, without numbers and names.

    Args:
        matrix: Number of images by true class (row) and predicted class (column).
        classes: Class names.
        theme: Colours.
        title: Text above the matrix.
    """
    counts = np.array(matrix, dtype=np.float64)
    wrong = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    np.fill_diagonal(wrong, 0)
    largest = max(float(wrong.max()), 1e-9)
    strengths = HEAT * wrong / largest
    np.fill_diagonal(strengths, 0.12)
    legible = len(classes) <= LEGIBLE
    side = max(420, (46 if legible else 7) * len(classes) + 170)
    with drawing(theme, size=12):
        from matplotlib.colors import to_rgb
        from matplotlib.patches import Patch

        colours = np.full((*counts.shape, 3), to_rgb(theme.series[0]))
        colours[np.diag_indices(len(counts))] = to_rgb(theme.muted)
        figure = new_figure(side, side)
        axes = figure.add_subplot()
        axes.imshow(np.concatenate([colours, strengths[..., None]], axis=2))
        if legible:
            _write_numbers(axes, counts, classes, theme)
        else:
            axes.set_xticks([])
            axes.set_yticks([])
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(not legible)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        axes.set_title(title, loc="left", weight="bold")
        keys = [
            Patch(facecolor=(*to_rgb(theme.muted), 0.12), label="right"),
            *(
                Patch(facecolor=(*to_rgb(theme.series[0]), HEAT * part), label=f"wrong, {100 * part * largest:.1f} %")
                for part in (0.25, 1)
            ),
        ]
        heading = "share of the true class"
        figure.legend(handles=keys, loc="outside lower center", ncols=3, title=heading, handlelength=1, handleheight=1)
        figure.set_layout_engine("constrained")
    return figure


def _write_numbers(axes: Axes, counts: NDArray[np.float64], classes: Sequence[str], theme: Theme) -> None:
    """Writes the counts into the cells and the names beside them, and parts the cells."""
    for (i, j), count in np.ndenumerate(counts):
        if count:
            axes.text(j, i, f"{int(count)}", ha="center", va="center", size=8)
    axes.set_xticks(range(len(classes)), classes, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(classes)), classes)
    borders = np.arange(len(classes) - 1) + 0.5
    axes.set_xticks(borders, minor=True)
    axes.set_yticks(borders, minor=True)
    axes.grid(which="minor", color=theme.surface, linewidth=2)
