"""Confusions and the worst mistakes on a set of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from epitomic.evaluation import Scores
from epitomic.visualisation.style import HEAT, LIGHT, Theme, drawing, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEGIBLE = 25  # classes that a matrix is drawn for


@dataclass(frozen=True)
class Mistake:
    """One image that was classified wrongly.

    Attributes:
        index: Of the image in the test set.
        label: Its class.
        predicted: The class it was given.
        probabilities: The most likely classes with their probabilities, the first ones.
        label_probability: Of its own class.
    """

    index: int
    label: int
    predicted: int
    probabilities: tuple[tuple[int, float], ...]
    label_probability: float


def worst_mistakes(scores: Scores, count: int = 12, classes: int = 3) -> list[Mistake]:
    """The images whose own class was given the lowest probability, the worst first.

    Args:
        scores: Of a set of images.
        count: How many at most.
        classes: How many of the most likely classes to tell.
    """
    probabilities = scores.scores.double().softmax(1)  # (N, classes)
    own = probabilities.gather(1, scores.labels[:, None])[:, 0]
    wrong = (scores.scores.argmax(1) != scores.labels).nonzero()[:, 0]
    found = []
    for index in wrong[own[wrong].argsort()][:count].tolist():
        top = probabilities[index].topk(min(classes, probabilities.shape[1]))
        likely = tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True))
        found.append(Mistake(index, int(scores.labels[index]), likely[0][0], likely, float(own[index])))
    return found


def confused_pairs(matrix: Sequence[Sequence[int]], count: int = 10) -> list[tuple[int, int, int]]:
    """The most frequent confusions: (class, predicted class, images), the most frequent first.

    >>> confused_pairs([[5, 2], [1, 7]])
    [(0, 1, 2), (1, 0, 1)]
    """
    pairs = [(i, j, int(n)) for i, row in enumerate(matrix) for j, n in enumerate(row) if i != j and n]
    return sorted(pairs, key=lambda pair: -pair[2])[:count]


def confusion_figure(
    matrix: Sequence[Sequence[int]], classes: Sequence[str], *, theme: Theme = LIGHT, title: str = ""
) -> Figure:
    """The confusion matrix: a row a class, a column a prediction, errors in colour and the diagonal in grey."""
    counts = np.array(matrix, dtype=np.float64)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    wrong = shares.copy()
    np.fill_diagonal(wrong, 0)
    side = max(420, 46 * len(classes) + 170)
    with drawing(theme, size=12):
        figure = new_figure(side, side)
        axes = figure.add_subplot()
        axes.imshow(np.zeros_like(counts), cmap="Blues", vmin=0, vmax=1, alpha=0)
        top = max(float(wrong.max()), 1e-9)
        for i in range(len(classes)):
            for j in range(len(classes)):
                strength = 0.12 if i == j else HEAT * wrong[i, j] / top
                colour = theme.muted if i == j else theme.series[0]
                axes.add_patch(_square(i, j, colour, strength))
                if counts[i, j]:
                    axes.text(j, i, f"{int(counts[i, j])}", ha="center", va="center", size=8)
        axes.set_xticks(range(len(classes)), classes, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(classes)), classes)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("predicted")
        axes.set_ylabel("class")
        if title:
            axes.set_title(title, loc="left", weight="bold")
        figure.set_layout_engine("constrained")
    return figure


def _square(row: int, column: int, colour: str, strength: float):  # type: ignore[no-untyped-def]
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, color=colour, alpha=strength, linewidth=0)
