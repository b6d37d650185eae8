"""Draws values with their intervals, one below the other, such as differences between networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from epitomic.visualisation.style import LIGHT, Theme, drawing, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW, TITLE, KEY, AXIS = 42, 34, 21, 58  # heights in pixels: of a row, a title, a line of the key, and the axis
MARKERS = ("o", "s", "^", "D")


@dataclass(frozen=True)
class Row:
    """One value.

    Attributes:
        label: What the value is of.
        value: The value.
        interval: Lower and upper end of its interval; None if it has none.
        kind: Number of its entry in the key, which sets colour and marker.
        text: The value as text; it stands to the right of the label.
    """

    label: str
    value: float
    interval: tuple[float, float] | None
    kind: int
    text: str


def intervals_figure(
    groups: Mapping[str, Sequence[Row]],
    *,
    keys: Sequence[str],
    label: str,
    line: float = 0.0,
    theme: Theme = LIGHT,
    width: int = 480,
) -> Figure:
    """Draws each row as a point on a line, below its label.

    Args:
        groups: Title -> rows.
        keys: What each kind of row means.
        label: Label of the axis.
        line: Where to draw the vertical line that rows are compared with.
        theme: Colours.
        width: Width in pixels. The height follows from the rows.
    """
    height = KEY * len(keys) + AXIS + sum(TITLE + ROW * len(rows) for rows in groups.values())
    with drawing(theme):
        from matplotlib.lines import Line2D

        figure = new_figure(width, height)
        body = height - KEY * len(keys) - AXIS
        axes = figure.add_axes((0.04, AXIS / height, 0.92, body / height))
        axes.set_ylim(body, 0)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.grid(True, axis="x")
        axes.set_axisbelow(True)
        axes.axvline(line, color=theme.muted, linewidth=1.2)
        axes.set_xlabel(label)
        across = axes.get_yaxis_transform()  # x as a share of the axes, y in pixels
        backing = {"facecolor": theme.surface, "edgecolor": "none", "pad": 1.0}
        top = 0
        for title, rows in groups.items():
            axes.text(0, top + 20, title, weight="bold", transform=across, va="center", bbox=backing)
            top += TITLE
            for row in rows:
                axes.text(0, top + 11, row.label, transform=across, va="center", bbox=backing)
                axes.text(1, top + 11, row.text, transform=across, va="center", ha="right", bbox=backing)
                colour, at = _colour(theme, row.kind), top + 29
                if row.interval is not None:
                    axes.plot(row.interval, (at, at), color=colour, linewidth=3, solid_capstyle="butt")
                axes.plot([row.value], [at], MARKERS[row.kind], color=colour, markersize=7)
                top += ROW
        axes.margins(x=0.06)
        for number, text in enumerate(keys):
            place = 1 - (number + 0.7) * KEY / height
            mark = Line2D([0.06], [place], marker=MARKERS[number], color=_colour(theme, number), markersize=7)
            figure.add_artist(mark)
            figure.text(0.1, place, text, va="center")
    return figure


def _colour(theme: Theme, kind: int) -> str:
    """Green, orange, grey and blue: better, worse, undecided, and another's value."""
    return (theme.series[2], theme.series[1], theme.muted, theme.series[0])[kind]
