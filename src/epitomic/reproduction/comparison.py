"""Computes how sure we are that two networks differ: over seeds, and over test images."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95  # of every interval
POWER = 0.8  # probability with which runs find their `smallest_difference`
RESAMPLES = 2000  # of the bootstrap


@dataclass(frozen=True)
class Interval:
    """A difference of two means, and the interval that holds the true one with a confidence of 95 %.

    Attributes:
        difference: First mean minus second mean.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Whether the first network's error is ``lower``, ``higher`` or ``undecided``."""
        if self.high < 0:
            return "lower"
        return "higher" if self.low > 0 else "undecided"

    def __str__(self) -> str:
        low, high = (f"{100 * edge:+.2f}" for edge in (self.low, self.high))
        return f"{signed(self.difference)} ({low} to {high})"


def signed(value: float) -> str:
    """Returns a share in percent, always with its sign.

    >>> signed(-0.00001), signed(0.0123)
    ('+0.00', '+1.23')
    """
    return f"{100 * value:+.2f}".replace("-0.00", "+0.00")


def welch(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """Returns Welch's t interval of the difference of two means over seeds; None if one of them has a single seed.

    The two may have different spreads and different numbers of seeds.
    """
    if min(len(first), len(second)) < 2:
        return None
    difference = statistics.fmean(first) - statistics.fmean(second)
    error, freedom = _standard_error(first, second)
    half = _quantile((1 + CONFIDENCE) / 2, freedom) * error
    return Interval(difference, difference - half, difference + half)


def smallest_difference(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Returns the true difference that runs like these would find in 80 % of all cases; None if one has a single seed.

    A difference is found if Welch's interval does not hold zero.
    """
    if min(len(first), len(second)) < 2:
        return None
    error, freedom = _standard_error(first, second)
    return _detected_shift(freedom) * error


def over_images(first: Sequence[str], second: Sequence[str], places: int = 1, seed: int = 0) -> Interval | None:
    """Returns a bootstrap interval of the difference of two errors over test images, paired by image.

    It shows how much the difference depends on the test images. The trained networks are taken as they are.

    Args:
        first: Ranks (`Scores.ranks`) of each seed of the first network.
        second: Ranks of each seed of the second network.
        places: 1 or 5. An image is an error if its class is not among so many highest scores.
        seed: Seed of the random numbers.

    Returns:
        The interval; None if a network has no ranks.

    Raises:
        ValueError: If the ranks are not all of the same number of images.
    """
    import numpy as np

    if not first or not second:
        return None
    if len({len(ranks) for ranks in (*first, *second)}) > 1:
        raise ValueError("ranks must be of the same images, but they are of different numbers of images")
    right = "12345"[:places]
    errors = [np.mean([[rank not in right for rank in ranks] for ranks in group], axis=0) for group in (first, second)]
    differences = errors[0] - errors[1]  # (images,)
    count, random = len(differences), np.random.default_rng(seed)
    means = [differences[random.integers(count, size=count)].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(differences.mean()), float(low), float(high))


def _standard_error(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Returns the standard error of the difference, and the degrees of freedom by Welch and Satterthwaite."""
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    if not sum(parts):
        return 0.0, float(len(first) + len(second) - 2)
    weights = [part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True)]
    return math.sqrt(sum(parts)), sum(parts) ** 2 / sum(weights)


def _quantile(share: float, freedom: float) -> float:
    """Returns the quantile of Student's t distribution."""
    from scipy.stats import t

    return float(t.ppf(share, freedom))


def _detected_shift(freedom: float) -> float:
    """Returns the difference, in standard errors, that a t test finds with the probability `POWER`."""
    from scipy.optimize import brentq
    from scipy.stats import nct

    limit = _quantile((1 + CONFIDENCE) / 2, freedom)
    return float(brentq(lambda shift: nct.sf(limit, freedom, shift) - POWER, limit, 3 * limit + 10))
