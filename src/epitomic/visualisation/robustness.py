"""Draws error and changed predictions by the shift of the test images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from epitomic.analysis.robustness import spread_by_shift
from epitomic.analysis.robustness_table import Groups, label_with_seeds
from epitomic.visualisation.curves import BAND, WIDE, add_legend, draw_line, set_scale
from epitomic.visualisation.style import LIGHT, Theme, drawing, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INTERVAL = "Bands show the 95 % interval."


def robustness_figure(groups: Groups, *, theme: Theme = LIGHT, size: tuple[int, int] = (980, 420)) -> Figure:
    """Draws means over directions and seeds, with a band from the lowest to the highest seed.

    If there is one run of each network, the bands show the 95 % interval.

    Args:
        groups: Label and rows of each network.
        theme: Colours.
        size: Width and height in pixels. The two panels stand side by side, or one above the other if that fits better.
    """
    with drawing(theme):
        figure = new_figure(*size)
        stacked = size[1] > size[0]
        panels: Any = figure.subplots(2 if stacked else 1, 1 if stacked else 2)
        seeds = any(len({row.run for row in rows}) > 1 for rows in groups.values())
        for axes, value, title in zip(
            panels, ("error", "changed"), ("error (%)", "predictions changed (%)"), strict=True
        ):
            everything = []
            for number, (label, rows) in enumerate(groups.items()):
                found = spread_by_shift(rows, value)
                mean, low, high = (
                    [100 * getattr(point, name) for point in found.values()] for name in ("mean", "low", "high")
                )
                if seeds and len({row.run for row in rows}) == 1:
                    low = high = mean  # bands of seeds and intervals would be taken for each other
                draw_line(axes, theme, number, list(found), mean, (low, high), label_with_seeds(label, rows))
                everything += high
            set_scale(axes, np.array(everything), "linear", percent=True)
            axes.set_xticks(sorted({row.shift for rows in groups.values() for row in rows}))
            axes.set_xlabel("shift of the image (pixels)")
            axes.set_title(title, loc="left", weight="bold")
        meaning = BAND if seeds else INTERVAL
        if len(groups) > 1 or seeds or size[0] > WIDE:
            add_legend(panels[0], "upper left", meaning=meaning if size[0] > WIDE else None)
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.08)
    return figure
