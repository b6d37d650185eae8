"""Feeds a training from an image set in memory.

The order and augmentation of a batch depend only on (seed, epoch, batch). Standardisation is measured once, on the
training images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from epitomic.data.augmentation import Augmentation, apply, choose, cut_out
from epitomic.data.feed import Batch, Part
from epitomic.data.small.splits import ImageSet, Split, hold_out
from epitomic.data.small.views import plain_batches
from epitomic.data.standardisation import Standardize
from epitomic.support.rng import generator


class MemoryFeed:
    """Feeds a training from an image set in memory; see `Feed` for its attributes.

    Every epoch visits the images in a new order and in full batches. It leaves out the images that are left over.

    Args:
        images: The image set.
        validation: Number of training images to hold out for validation, unless the set has such images already.
        batch_size: Number of images in a global batch.
        augmentation: Random changes of the training images.
        seed: Seed of the run.
        views: Views of each test image whose predictions are averaged, one of `VIEWS`.
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
        self.set, self.batch_size, self.seed = images, batch_size, seed
        self.augmentation, self.views = augmentation, views
        self.classes, self.channels, self.image_size = images.classes, images.channels, images.image_size
        self.fingerprint = images.fingerprint or f"{images.name} {validation}"
        self.bad: dict[str, str] = {}
        if images.validation is None:
            self.training, self.held_out = hold_out(images.train, validation)
        else:
            self.training, self.held_out = images.train, images.validation
        self.placed = self.training  # the same images on the device that trains
        self.standardize = Standardize.of(self.training.images)
        self.mirrored: Tensor | None = None  # (images,): which ones are mirrored in even epochs
        if augmentation.flip and augmentation.alternate:
            draws = generator("flip", seed)
            self.mirrored = torch.randint(0, 2, (len(self.training),), generator=draws, dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.training) // self.batch_size

    @property
    def images(self) -> int:
        """Number of training images."""
        return len(self.training)

    def count(self, batch: int) -> int:
        """Returns the batch size: every batch is full."""
        return self.batch_size

    def order(self, epoch: int) -> Tensor:
        """Returns the image numbers of an epoch, (batches, batch_size)."""
        order = torch.randperm(len(self.training), generator=generator("order", self.seed, epoch))
        return order[: len(self) * self.batch_size].reshape(len(self), self.batch_size)

    def stream(self, epoch: int, batch: int, part: Part) -> Iterator[Batch]:
        """Yields the pieces of an epoch's batches, from ``batch`` on."""
        for number, samples in enumerate(self.order(epoch)[batch:], start=batch):
            for places in part.slices(self.batch_size):
                yield self._piece(epoch, number, samples, places, part.device)

    def _piece(self, epoch: int, batch: int, samples: Tensor, places: slice, device: torch.device) -> Batch:
        """Returns the images in these places of a global batch, whose image numbers are ``samples``.

        The whole set is on the device, and is augmented there.
        """
        if self.placed.images.device != device:
            self.placed = Split(self.training.images.to(device), self.training.labels.to(device))
        chosen = self.placed.take(samples[places].to(device))
        images = chosen.images.float().div_(255)
        draws = generator("augment", self.seed, epoch, batch)
        choices = choose(self.augmentation, self.batch_size, self.image_size, draws)
        choices = {name: values[places] for name, values in choices.items()}
        if self.mirrored is not None:
            choices["flip"] = self.mirrored[samples[places]] ^ bool(epoch % 2)
        choices = {name: values.to(device) for name, values in choices.items()}
        with device:  # new tensors are made there
            images = self.standardize(apply(self.augmentation, choices, images))
            return cut_out(self.augmentation, choices, images), chosen.labels

    def validation(self, part: Part) -> Iterable[Batch]:
        """Returns this process's share of the validation images."""
        share = torch.arange(part.rank, len(self.held_out), part.processes)
        return plain_batches(self.held_out.take(share), self.standardize)

    def describe(self) -> dict[str, Any]:
        """Returns what a user of the weights needs besides the network."""
        facts = {"dataset": self.set.name, "classes": list(self.classes), "standardize": asdict(self.standardize)}
        return {**facts, "views": self.views}
