"""Image sets in memory: images with labels, and how a part of them is held out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from epitomic.support.errors import UserError
from epitomic.support.rng import generator


@dataclass(frozen=True)
class Split:
    """Images and their labels.

    Attributes:
        images: Pixels, (N, C, H, W), uint8.
        labels: Class numbers, (N,), int64.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Tensor) -> Split:
        """Returns the images with these numbers, and their labels."""
        return Split(self.images[indices], self.labels[indices])


@dataclass(frozen=True)
class ImageSet:
    """A whole image set in memory.

    Attributes:
        name: Name of the set, such as ``"mnist"``.
        classes: Names of the classes, in the order of the labels.
        train: Images to learn from; `hold_out` takes the validation images from them.
        test: Images to test on once, at the end.
        validation: Images to validate on, if the set has them already.
        fingerprint: Text that changes with the images; a set with a name needs none.
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    validation: Split | None = None
    fingerprint: str | None = None

    @property
    def channels(self) -> int:
        """Number of colour channels of the images."""
        return self.train.images.shape[1]

    @property
    def image_size(self) -> int:
        """Height and width of the images in pixels."""
        return self.train.images.shape[2]


def hold_out(split: Split, count: int, purpose: str = "validation") -> tuple[Split, Split]:
    """Separates ``count`` images from the rest: always the same ones, with the same share of every class.

    Returns:
        The rest and the held-out images, both in their old order.
    """
    if not 0 < count < len(split):
        raise UserError(
            f"the {purpose} set must have from 1 to {len(split) - 1} of the {len(split)} images, got {count}"
        )
    order = torch.randperm(len(split), generator=generator("hold out", purpose))
    by_class = order[split.labels[order].argsort(stable=True)]  # shuffled within each class
    held = torch.zeros(len(split), dtype=torch.bool)
    held[by_class[torch.arange(count) * len(split) // count]] = True  # equally spaced: the same share of every class
    return split.take((~held).nonzero()[:, 0]), split.take(held.nonzero()[:, 0])
