"""Feeds a training from a set in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F

from epitomic.data.augment import Augmentation
from epitomic.data.batches import Standardize, TrainingBatches
from epitomic.data.feed import Batch, Part
from epitomic.data.sets import ImageSet, Split, hold_out

EVALUATE = 500  # images at a time
VIEWS = ("one", "mirrored", "shifted", "nudged")  # of a test image: see `view_batches`
# Where the shifted ones begin in the image padded by a pixel.
CORNERS = {"mirrored": (), "shifted": ((0, 0), (2, 2)), "nudged": ((0, 0), (2, 2), (0, 2), (2, 0))}


class MemoryFeed:
    """See `Feed`.

    Args:
        images: The set.
        validation: Training images to hold out.
        batch_size: Of the global batch.
        augmentation: What to change at random.
        seed: Of the run.
        views: One of `VIEWS`: what the test looks at besides the images as they are.
    """

    def __init__(
        self,
        images: ImageSet,
        validation: int,
        batch_size: int,
        augmentation: Augmentation,
        seed: int,
        *,
        views: str = "one",
    ) -> None:
        self.set, self.batch_size, self.views = images, batch_size, views
        self.classes, self.channels, self.image_size = images.classes, images.channels, images.image_size
        self.fingerprint = f"{images.name} {validation}"
        self.bad: dict[str, str] = {}
        self.training, self.held_out = hold_out(images.train, validation)
        self.standardize = Standardize.of(self.training)
        self.batches = TrainingBatches(self.training, batch_size, augmentation, self.standardize, seed)

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def images(self) -> int:
        """How many there are to learn from."""
        return len(self.training)

    def count(self, batch: int) -> int:
        """All batches are whole; what is left over of an epoch is left out."""
        return self.batch_size

    def stream(self, epoch: int, batch: int, part: Part) -> Iterator[Batch]:
        """The pieces of an epoch's batches, from ``batch`` on."""
        order = self.batches.order(epoch)
        for number in range(batch, len(self.batches)):
            for places in part.slices(self.batch_size):
                yield self.batches.get(order, epoch, number, places)

    def validation(self, part: Part) -> Iterable[Batch]:
        """This process's share of the validation set."""
        share = torch.arange(part.rank, len(self.held_out), part.processes)
        return plain_batches(self.held_out.take(share), self.standardize)

    def tests(self, device: torch.device) -> dict[str, Iterable[Batch]]:
        """The test set; where several views are averaged, also as it is."""
        plain = plain_batches(self.set.test, self.standardize)
        if self.views == "one":
            return {"test": plain}
        return {"test": view_batches(self.set.test, self.standardize, self.views), "plain": plain}

    def describe(self) -> dict[str, Any]:
        """What a user of the weights needs besides the network."""
        facts = {"dataset": self.set.name, "classes": list(self.classes), "standardize": asdict(self.standardize)}
        return {**facts, "views": self.views}


def plain_batches(split: Split, standardize: Standardize) -> Iterator[Batch]:
    """The images as they are."""
    for images, labels in zip(split.images.split(EVALUATE), split.labels.split(EVALUATE), strict=True):
        yield standardize(images.float().div_(255)), labels


def view_batches(split: Split, standardize: Standardize, views: str) -> Iterator[Batch]:
    """Several views of each image, (N, views, C, H, W), whose class probabilities are to be averaged.

    ``one``: the image as it is, (N, C, H, W). ``mirrored``: it and its mirror image. ``shifted``: both, also one pixel
    up and left, and down and right. ``nudged``, for what has no mirror image, such as digits: the image as it is, and
    one pixel towards each corner. What comes in at the border is the image mirrored.
    """
    if views == "one":
        yield from plain_batches(split, standardize)
        return
    for images, labels in plain_batches(split, standardize):
        h, w = images.shape[2:]
        wide = F.pad(images, (1, 1, 1, 1), mode="reflect")
        seen = [images, *(wide[:, :, y : y + h, x : x + w] for y, x in CORNERS[views])]
        if views != "nudged":
            seen += [view.flip(3) for view in seen]
        yield torch.stack(seen, 1), labels
