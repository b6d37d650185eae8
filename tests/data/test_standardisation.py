"""Standardised training images have mean 0 and standard deviation 1."""

from __future__ import annotations

import torch

from epitomic.data.standardisation import Standardize
from tests.data.conftest import random_split


def test_standardize() -> None:
    samples = random_split(500)
    images = Standardize.of(samples.images)(samples.images.float() / 255)
    assert torch.allclose(images.mean((0, 2, 3)), torch.zeros(2), atol=1e-4)
    assert torch.allclose(images.std((0, 2, 3)), torch.ones(2), atol=1e-3)
