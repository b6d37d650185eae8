"""Draws the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from epitomic.visualisation.style import HEAT, LIGHT, Theme, drawing, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEGIBLE = 25  # largest number of classes whose matrix can be read


def confusion_figure(
    matrix: Sequence[Sequence[int]], classes: Sequence[str], *, theme: Theme = LIGHT, title: str = ""
) -> Figure:
    """Draws the confusion matrix: true classes in rows, predicted classes in columns, mistakes in colour.

    Args:
        matrix: Number of images by true class (row) and predicted class (column).
        classes: Class names.
        theme: Colours.
        title: Text above the matrix.
    """
    counts = np.array(matrix, dtype=np.float64)
    wrong = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    np.fill_diagonal(wrong, 0)
    strengths = HEAT * wrong / max(float(wrong.max()), 1e-9)
    np.fill_diagonal(strengths, 0.12)
    side = max(420, 46 * len(classes) + 170)
    with drawing(theme, size=12):
        from matplotlib.colors import to_rgb

        colours = np.full((*counts.shape, 3), to_rgb(theme.series[0]))
        colours[np.diag_indices(len(counts))] = to_rgb(theme.muted)
        figure = new_figure(side, side)
        axes = figure.add_subplot()
        axes.imshow(np.concatenate([colours, strengths[..., None]], axis=2))
        for (i, j), count in np.ndenumerate(counts):
            if count:
                axes.text(j, i, f"{int(count)}", ha="center", va="center", size=8)
        axes.set_xticks(range(len(classes)), classes, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(classes)), classes)
        borders = np.arange(len(classes) - 1) + 0.5
        axes.set_xticks(borders, minor=True)
        axes.set_yticks(borders, minor=True)
        axes.grid(which="minor", color=theme.surface, linewidth=2)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        axes.set_title(title, loc="left", weight="bold")
        figure.set_layout_engine("constrained")
    return figure
