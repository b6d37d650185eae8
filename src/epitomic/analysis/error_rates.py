"""How sure an error rate is, and the mean error over classes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from epitomic.evaluation import UNEVEN

Z = 1.959964  # a normal variable lies within this many standard deviations of its mean in 95 % of cases


def wilson(errors: int, images: int) -> tuple[float, float]:
    """The 95 % interval of an error rate, by Wilson's score, which also fits few images and few errors.

    >>> low, high = wilson(5, 100)
    >>> round(low, 4), round(high, 4)
    (0.0215, 0.1118)
    """
    if not 0 <= errors <= images or not images:
        raise ValueError(f"{errors} errors of {images} images")
    rate, square = errors / images, Z * Z / images
    middle = (rate + square / 2) / (1 + square)
    half = math.sqrt(square * (rate * (1 - rate) + square / 4)) / (1 + square)
    low = middle - half if errors else 0.0
    return max(0.0, low), 1.0 if errors == images else min(1.0, middle + half)


def class_errors(figures: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Returns the errors and the images of each class, from the figures of a test (`evaluation.Scores.report`)."""
    return {
        name: (round((1 - (row["recall"] or 0.0)) * row["images"]), row["images"])
        for name, row in figures["classes"].items()
    }


def mean_class_error(figures: Mapping[str, Any]) -> float:
    """The mean of the classes' error rates; classes without images do not count."""
    rates = [errors / images for errors, images in class_errors(figures).values() if images]
    return sum(rates) / len(rates)


def are_uneven(counts: Iterable[int]) -> bool:
    """Whether the classes differ so much in size that the mean error over classes says something of its own.

    >>> are_uneven([10, 12]), are_uneven([10, 16])
    (False, True)
    """
    sizes = [count for count in counts if count]
    return bool(sizes) and max(sizes) > UNEVEN * min(sizes)
