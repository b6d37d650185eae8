"""What a training asks of its images, whether they are in memory (`data.memory`) or on disk (`data.photographs`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from epitomic.errors import UserError

Batch = tuple[Tensor, Tensor]
"""Images, (N, C, H, W), or several views of each, (N, V, C, H, W), standardised; and labels, (N,), int64."""

SKIP = -100  # the label of what does not count: in place of a bad image, or in the room left in an epoch's last batch
BAD_SHARE = 0.01  # of the images of an epoch: with more bad ones than this, the run stops


@dataclass(frozen=True)
class Part:
    """What one process takes of every global batch.

    Attributes:
        rank: Which process,
        processes: of how many.
        pieces: In how many pieces it takes its part.
        device: Where the images are wanted.
    """

    rank: int = 0
    processes: int = 1
    pieces: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def slices(self, batch_size: int) -> Iterator[slice]:
        """The places in the global batch of each piece."""
        size = batch_size // self.processes // self.pieces
        for piece in range(self.pieces):
            first = (self.rank * self.pieces + piece) * size
            yield slice(first, first + size)


class Feed(Protocol):
    """Images to learn from, to validate on and to test on.

    Attributes:
        classes: Names, in the order of the labels.
        channels: Of the images.
        image_size: Height and width of what the network sees.
        fingerprint: Says whether a resumed run has the images that it began with.
    """

    classes: tuple[str, ...]
    channels: int
    image_size: int
    fingerprint: str

    @property
    def bad(self) -> dict[str, str]:
        """Images that could not be read so far, by name, with the reason."""
        ...

    def __len__(self) -> int:
        """Batches in an epoch."""
        ...

    @property
    def images(self) -> int:
        """How many there are to learn from."""
        ...

    def count(self, batch: int) -> int:
        """Images in a global batch of an epoch, from the first, 0."""
        ...

    def stream(self, epoch: int, batch: int, part: Part) -> Iterator[Batch]:
        """The pieces of an epoch's batches from ``batch`` on, in order: a function of the arguments alone."""
        ...

    def validation(self, part: Part) -> Iterable[Batch]:
        """This process's share of the validation set."""
        ...

    def tests(self, device: torch.device) -> dict[str, Iterable[Batch]]:
        """What is looked at once, at the end; ``test`` is the one that counts."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a user of the weights needs besides the network."""
        ...


def too_many(count: int, images: int, bad: dict[str, str]) -> UserError:
    """The error that ends a run with too many bad images."""
    example = next((f"; one of them: {name}: {reason}" for name, reason in bad.items()), "")
    return UserError(f"{count} of {images} images cannot be read, more than {100 * BAD_SHARE:g} %{example}")
