"""Draws error and changed predictions by the shift of the test images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from epitomic.analysis.robustness import mean_by_shift
from epitomic.analysis.robustness_table import Groups, label_with_seeds
from epitomic.visualisation.curves import WIDE, add_legend, draw_line, set_scale
from epitomic.visualisation.style import LIGHT, Theme, drawing, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def robustness_figure(groups: Groups, *, theme: Theme = LIGHT, size: tuple[int, int] = (980, 420)) -> Figure:
    """Draws means over directions and seeds, with a band from the lowest to the highest seed.

    Args:
        groups: Label and rows of each network.
        theme: Colours.
        size: Width and height in pixels. The two panels stand side by side, or one above the other if that fits better.
    """
    with drawing(theme):
        figure = new_figure(*size)
        stacked = size[1] > size[0]
        panels: Any = figure.subplots(2 if stacked else 1, 1 if stacked else 2)
        banded = False
        for axes, value, title in zip(
            panels, ("error", "changed"), ("error (%)", "predictions changed (%)"), strict=True
        ):
            everything = []
            for number, (label, rows) in enumerate(groups.items()):
                points = mean_by_shift(rows, value)
                mean, low, high = ([100 * float(f(v)) for v in points.values()] for f in (np.mean, min, max))
                draw_line(axes, theme, number, list(points), mean, (low, high), label_with_seeds(label, rows))
                banded = banded or low != high
                everything += high
            set_scale(axes, np.array(everything), "linear", percent=True)
            axes.set_xticks(sorted({row.shift for rows in groups.values() for row in rows}))
            axes.set_xlabel("shift of the image (pixels)")
            axes.set_title(title, loc="left", weight="bold")
        if len(groups) > 1:
            add_legend(panels[0], "upper left", banded=banded and size[0] > WIDE)
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.08)
    return figure
