"""Charts: colours, contrast, and lines that can be told apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from epitomic.analysis.robustness import ShiftRow
from epitomic.visualisation import DARK, LIGHT, confusion_figure, robustness_figure
from epitomic.visualisation.confusion import LEGIBLE
from epitomic.visualisation.style import HEAT, Theme

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
