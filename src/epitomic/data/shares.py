"""Trains on a share of the training images, to see what more images would bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from epitomic.data.feed import Feed
from epitomic.data.photographs.feed import PhotographFeed
from epitomic.data.photographs.loading import ImageSource
from epitomic.data.small.feed import MemoryFeed
from epitomic.support.rng import generator

if TYPE_CHECKING:
    from PIL.Image import Image


def take_share(feed: Feed, share: float) -> None:
    """Leaves a feed only a share of its training images: the same share of every class, always the same images.

    A smaller share is a part of a larger one. Validation images and the standardisation stay those of all images.
    """
    if isinstance(feed, MemoryFeed):
        feed.training = feed.training.take(choose_share(feed.training.labels, share))
    elif isinstance(feed, PhotographFeed):
        feed.train = Chosen(feed.train, choose_share(feed.train.labels, share))
    else:
        raise TypeError(f"a {type(feed).__name__} cannot be shared")
    feed.fingerprint = f"{feed.fingerprint} share {share:g}"


def choose_share(labels: Tensor, share: float) -> Tensor:
    """Returns the numbers of a share of the images, in ascending order; every class keeps at least one.

    >>> choose_share(torch.tensor([0, 0, 0, 0, 1, 1]), 0.5).shape
    torch.Size([3])
    """
    order = torch.randperm(len(labels), generator=generator("share"))
    ordered, kept = labels[order], []
    for label in labels.unique():
        own = order[ordered == label]
        kept.append(own[: max(1, round(share * len(own)))])
    return torch.cat(kept).sort().values


class Chosen:
    """Some of the images of a source.

    Args:
        source: The images.
        numbers: Numbers of the images that are chosen.
    """

    def __init__(self, source: ImageSource, numbers: Tensor) -> None:
        self.source, self.numbers = source, numbers.tolist()
        self.classes, self.size = source.classes, source.size
        self.labels = source.labels[numbers]
        self.fingerprint = f"{source.fingerprint} {len(self.numbers)}"

    def __len__(self) -> int:
        return len(self.numbers)

    def name(self, index: int) -> str:
        """Returns the name of an image for messages."""
        return self.source.name(self.numbers[index])

    def read(self, index: int) -> Image:
        """Reads an image, or raises `BadImageError`."""
        return self.source.read(self.numbers[index])

    def pixels(self, index: int) -> Any:
        """Reads an image as an array, (H, W, 3) uint8, or raises `BadImageError`."""
        return self.source.pixels(self.numbers[index])
