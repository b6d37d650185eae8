"""What a training needs of its images, whether they are in memory (`small.feed`) or on disk (`photographs.feed`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from epitomic.support.errors import UserError

Batch = tuple[Tensor, Tensor]
"""Standardised images, (N, C, H, W), or V views of each, (N, V, C, H, W); and labels, (N,), int64."""

SKIP = -100  # label of an image that does not count: it fills the place of a bad image, or an empty one at the end
BAD_SHARE = 0.01  # a run stops when a larger share of an epoch's images is bad


@dataclass(frozen=True)
class Part:
    """The part of every global batch that one process takes.

    Attributes:
        rank: Number of this process.
        processes: Number of all processes.
        pieces: Number of pieces in which this process takes its part.
        device: Device that the images go to.
    """

    rank: int = 0
    processes: int = 1
    pieces: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def slices(self, batch_size: int) -> Iterator[slice]:
        """Yields the places of each piece in the global batch."""
        size = batch_size // self.processes // self.pieces
        for piece in range(self.pieces):
            first = (self.rank * self.pieces + piece) * size
            yield slice(first, first + size)


class Feed(Protocol):
    """Images to learn from and to validate on.

    Attributes:
        classes: Names of the classes, in the order of the labels.
        channels: Number of colour channels of the images.
        image_size: Height and width in pixels that the network sees.
        fingerprint: Text that changes with the images; a resumed run compares it.
    """

    classes: tuple[str, ...]
    channels: int
    image_size: int
    fingerprint: str

    @property
    def bad(self) -> dict[str, str]:
        """Images that could not be read so far: name and reason."""

    def __len__(self) -> int:
        """Returns the number of batches in an epoch."""

    @property
    def images(self) -> int:
        """Number of training images."""

    def count(self, batch: int) -> int:
        """Returns the number of images in a global batch; ``batch`` counts from 0 in each epoch."""

    def stream(self, epoch: int, batch: int, part: Part) -> Iterator[Batch]:
        """Yields the pieces of an epoch's batches in order, from ``batch`` on; depends on the arguments alone."""

    def validation(self, part: Part) -> Iterable[Batch]:
        """Returns this process's share of the validation images."""

    def describe(self) -> dict[str, Any]:
        """Returns what a user of the weights needs besides the network."""


def too_many(count: int, images: int, bad: dict[str, str]) -> UserError:
    """Returns the error that ends a run with too many bad images."""
    example = next((f"; one of them: {name}: {reason}" for name, reason in bad.items()), "")
    return UserError(f"{count} of {images} images cannot be read, more than {100 * BAD_SHARE:g} %{example}")
