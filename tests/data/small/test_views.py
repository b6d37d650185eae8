"""Views of test images against shifted and mirrored copies."""

from __future__ import annotations

import pytest
import torch

from epitomic.data.small.views import view_batches
from epitomic.data.standardisation import Standardize
from tests.data.conftest import random_split


@pytest.mark.parametrize(("views", "count"), [("mirrored", 2), ("shifted", 6)])
def test_views_of_test_images(views: str, count: int) -> None:
    samples = random_split(5, channels=1, size=6)
    ((seen, labels),) = view_batches(samples, Standardize((0.0,), (1.0,)), views)
    plain = samples.images.float() / 255
    assert seen.shape == (5, count, 1, 6, 6)
    assert torch.equal(labels, samples.labels)
    half = count // 2
    assert torch.equal(seen[:, 0], plain)
    assert torch.equal(seen[:, half:], seen[:, :half].flip(-1))
    if views == "shifted":
        assert torch.equal(seen[:, 1, :, 1:, 1:], plain[:, :, :-1, :-1])
        assert torch.equal(seen[:, 1, :, 0, 1:], plain[:, :, 1, :-1])  # mirrored at the border
        assert torch.equal(seen[:, 2, :, :-1, :-1], plain[:, :, 1:, 1:])


def test_nudged_views_are_shifted_towards_the_corners_and_not_mirrored() -> None:
    samples = random_split(5, channels=1, size=6)
    ((seen, labels),) = view_batches(samples, Standardize((0.0,), (1.0,)), "nudged")
    plain = samples.images.float() / 255
    assert seen.shape == (5, 5, 1, 6, 6)
    assert torch.equal(labels, samples.labels)
    assert torch.equal(seen[:, 0], plain)
    middle = plain[:, :, 2:4, 2:4]
    at = [
        [y, x]
        for image in seen[0]
        for y in range(5)
        for x in range(5)
        if torch.equal(image[:, y : y + 2, x : x + 2], middle[0])
    ]
    assert at == [[2, 2], [3, 3], [1, 1], [3, 1], [1, 3]]
