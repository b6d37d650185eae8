"""Charts: colours, contrast, and lines that can be told apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from epitomic.analysis.robustness import ShiftRow
from epitomic.training.run_folder import open_run
from epitomic.visualisation import (
    DARK,
    LIGHT,
    Row,
    confusion_figure,
    curves_figure,
    intervals_figure,
    robustness_figure,
)
from epitomic.visualisation.confusion import LEGIBLE
from epitomic.visualisation.style import HEAT, Theme
from tests.runs import MakeRun

WEIGHTS = (0.2126, 0.7152, 0.0722)  # of red, green and blue in the lightness


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_confusion_matrix_shows_counts_and_colours_errors(theme: Theme) -> None:
    figure = confusion_figure([[6, 1, 3], [0, 2, 0], [2, 0, 8]], ["a", "b", "c"], theme=theme, title="t")
    (axes,) = figure.axes
    numbers = {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in axes.texts}
    assert numbers == {(0, 0): "6", (0, 1): "1", (0, 2): "3", (1, 1): "2", (2, 0): "2", (2, 2): "8"}
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a", "b", "c"]
    strengths = np.asarray(axes.images[0].get_array())[..., 3]
    np.testing.assert_allclose(strengths, HEAT * np.array([[0, 1 / 3, 1], [0, 0, 0], [2 / 3, 0, 0]]) + 0.12 * np.eye(3))
    strongest = to_rgb(theme.series[0]), to_rgb(theme.surface)
    cell = [HEAT * c + (1 - HEAT) * under for c, under in zip(*strongest, strict=True)]
    assert contrast(cell, to_rgb(theme.ink)) > 4.5


def test_the_matrix_of_many_classes_has_colours_alone_and_every_matrix_a_key() -> None:
    many = np.eye(LEGIBLE + 1, dtype=int) * 4 + np.eye(LEGIBLE + 1, k=1, dtype=int)
    large = confusion_figure(many.tolist(), [f"c{i}" for i in range(LEGIBLE + 1)])
    (axes,) = large.axes
    assert [len(axes.texts), len(axes.get_yticks()), len(axes.get_xticks())] == [0, 0, 0]
    small = confusion_figure([[1, 1], [0, 2]], ["a", "b"])
    for figure, most in ((large, "wrong, 20.0 %"), (small, "wrong, 50.0 %")):
        (legend,) = figure.legends
        texts = [text.get_text() for text in legend.get_texts()]
        assert (texts[0], texts[-1]) == ("right", most)


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """Of two colours on the scale of 0 to 1, by WCAG 2."""
    levels = [
        sum(
            w * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for w, c in zip(WEIGHTS, rgb, strict=True)
        )
        for rgb in (one, other)
    ]
    return (max(levels) + 0.05) / (min(levels) + 0.05)


def test_more_networks_than_colours_have_other_lines() -> None:
    rows = [ShiftRow("digits", "m", 0, "r", shift, "left", 10, 0, 0.1, 0.0) for shift in (0, 1)]
    assert len(robustness_figure({"m": rows}, size=(360, 560)).axes) == 2
    for axes in robustness_figure({f"m{i}": rows for i in range(len(LIGHT.series) + 2)}).axes:
        assert axes.yaxis.get_gridlines()[0].get_visible()
        assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == len(LIGHT.series) + 2


def test_every_run_is_a_line_of_its_networks_colour(make_run: MakeRun) -> None:
    runs = [open_run(make_run(seed=seed)) for seed in (0, 1)] + [open_run(make_run("maxpool_small"))]
    (axes,) = curves_figure(runs, every_run=True).axes
    colours = [line.get_color() for line in axes.lines]
    assert colours == [LIGHT.series[0], LIGHT.series[0], LIGHT.series[1]]
    assert not axes.collections  # no bands
    assert axes.get_legend_handles_labels()[1] == ["epitomic_small (2 seeds)", "maxpool_small"]
    for run, line in zip(runs, axes.lines, strict=True):
        assert np.asarray(line.get_ydata()).tolist() == [100 * row["val_error"] for row in run.metrics]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_intervals_have_a_line_a_point_and_their_numbers(theme: Theme) -> None:
    rows = {"one": [Row("first", -0.5, (-1, 0.25), 2, "-0.50"), Row("no interval", 2, None, 0, "+2.00")], "two": []}
    figure = intervals_figure(rows, keys=["good", "bad", "open"], label="points", line=0.5, theme=theme)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["one", "first", "-0.50", "no interval", "+2.00", "two"]
    assert [text.get_text() for text in figure.texts] == ["good", "bad", "open"]
    across, segment, *points = axes.lines
    places = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    assert places == [[0.5, 0.5], [-1, 0.25], [-0.5], [2]]
    heights = [float(np.asarray(line.get_ydata())[0]) for line in (segment, *points)]
    assert heights[0] == heights[1] < heights[2]
    assert len({line.get_color() for line in (across, points[0])}) == 1  # undecided is as quiet as the line
    assert points[0].get_marker() != points[1].get_marker()  # without colours, too
