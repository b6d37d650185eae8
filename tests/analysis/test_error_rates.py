"""Intervals of error rates, and means over classes."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import binomtest

from epitomic.analysis.error_rates import class_errors, mean_class_error, wilson
from epitomic.evaluation import Scores


@pytest.mark.parametrize(
    ("errors", "images"), [(0, 1), (1, 1), (0, 360), (5, 360), (180, 360), (359, 360), (29, 10000)]
)
def test_the_interval_is_scipys(errors: int, images: int) -> None:
    expected = binomtest(errors, images).proportion_ci(0.95, method="wilson")
    assert wilson(errors, images) == pytest.approx((expected.low, expected.high), abs=1e-6)


@pytest.mark.parametrize(("errors", "images"), [(1, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(errors: int, images: int) -> None:
    with pytest.raises(ValueError, match="errors of"):
        wilson(errors, images)


def test_every_class_counts_the_same_in_the_mean() -> None:
    labels = torch.tensor([0] * 90 + [1] * 10)
    said = torch.tensor([0] * 95 + [1] * 5)  # half of the small class is wrong
    figures = Scores(torch.nn.functional.one_hot(said, 3).float(), labels).report(("a", "b", "never seen"))
    assert class_errors(figures) == {"a": (0, 90), "b": (5, 10), "never seen": (0, 0)}
    assert figures["error"] == pytest.approx(0.05)
    assert mean_class_error(figures) == pytest.approx(0.25)
