"""The images that a network gets most wrong, and the classes that it confuses most often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from epitomic.evaluation import Scores


@dataclass(frozen=True)
class Mistake:
    """One image that was classified wrongly.

    Attributes:
        index: Number of the image in the test set.
        label: Number of its true class.
        predicted: Number of the class that the network chose.
        probabilities: The most likely classes with their probabilities, the likeliest first.
        label_probability: Probability of the true class.
    """

    index: int
    label: int
    predicted: int
    probabilities: tuple[tuple[int, float], ...]
    label_probability: float


def worst_mistakes(scores: Scores, count: int = 12, classes: int = 3) -> list[Mistake]:
    """Finds the images whose true class got the lowest probability, the worst first.

    Args:
        scores: The network's scores and the labels.
        count: Largest number of mistakes to find.
        classes: Number of most likely classes to name for each.
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
    """The most frequent confusions as (true class, predicted class, images), the most frequent first.

    >>> confused_pairs([[5, 2], [1, 7]])
    [(0, 1, 2), (1, 0, 1)]
    """
    pairs = [(i, j, int(n)) for i, row in enumerate(matrix) for j, n in enumerate(row) if i != j and n]
    return sorted(pairs, key=lambda pair: -pair[2])[:count]
