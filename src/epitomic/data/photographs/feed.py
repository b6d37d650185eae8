"""Feeds a training from photographs on disk: the paper's input pipeline.

The order of an epoch depends only on (seed, epoch). The crop and noise of an image depend only on (seed, epoch, image).
Worker processes make whole pieces of batches, and torch's ``DataLoader`` gives them out in order. So the number of
workers changes no bit, and a stream can begin at any batch.

An epoch visits every image once, so its last batch may be smaller. Empty places of the last batch repeat its other
images. The place of a bad image repeats a good image of the same piece. Repeated images have the label `SKIP`, so they
do not count in the loss. Zeros would disturb the statistics of batch norms.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from epitomic.data.feed import SKIP, Batch, Part
from epitomic.data.photographs.color import ColorStatistics
from epitomic.data.photographs.crops import Photographs, center_crop, choose, mirror, random_crop
from epitomic.data.photographs.loading import (
    BadImages,
    ImageSource,
    Problems,
    load_in_order,
    shared_bytes,
    to_numbers,
)
from epitomic.data.photographs.views import evaluation_batches
from epitomic.support.images import BadImageError
from epitomic.support.rng import generator


class PhotographFeed:
    """Feeds a training from photographs on disk; see `Feed` for its attributes.

    Args:
        name: Name of the set.
        train: Images to learn from.
        val: Images to validate on, by their centre crops.
        statistics: Colour statistics of ``train``.
        config: What to do to the images.
        batch_size: Number of images in a global batch.
        seed: Seed of the run.
        workers: Number of processes that read images; with 0 the training's own process reads them.
    """

    channels = 3

    def __init__(
        self,
        name: str,
        train: ImageSource,
        val: ImageSource,
        statistics: ColorStatistics,
        config: Photographs,
        *,
        batch_size: int,
        seed: int,
        workers: int = 0,
    ) -> None:
        self.name, self.train, self.val, self.config = name, train, val, config
        self.batch_size, self.seed, self.workers = batch_size, seed, workers
        self.classes, self.image_size = train.classes, config.crop
        self.fingerprint = f"{train.fingerprint} {val.fingerprint}"
        self.standardize = statistics.standardize()
        self.noise = statistics.noise() * config.color_noise
        self.bad = BadImages()

    def __len__(self) -> int:
        return -(-len(self.train) // self.batch_size)

    @property
    def images(self) -> int:
        """Number of training images."""
        return len(self.train)

    def count(self, batch: int) -> int:
        """Returns the number of images in a batch: the batch size, except for the last batch of an epoch."""
        return min(self.batch_size, len(self.train) - batch * self.batch_size)

    def order(self, epoch: int) -> Tensor:
        """Returns the image numbers of an epoch, (batches, batch_size).

        A negative number ~s fills a place with image s, which does not count.
        """
        order = torch.randperm(len(self.train), generator=generator("order", self.seed, epoch))
        last = order[(len(self) - 1) * self.batch_size :]
        room = len(self) * self.batch_size - len(order)
        return torch.cat((order, ~last[torch.arange(room) % len(last)])).reshape(len(self), self.batch_size)

    def stream(self, epoch: int, batch: int, part: Part) -> Iterator[Batch]:
        """Yields the pieces of an epoch's batches, from ``batch`` on."""
        order = self.order(epoch)[batch:]
        pieces = [row[places] for row in order for places in part.slices(self.batch_size)]
        read = partial(_read_piece, self.train, self.config, self.seed, epoch)
        for images, labels, flips, normal, problems in load_in_order(read, pieces, self.workers, part.device):
            self.bad.note(problems)
            noise = normal @ self.noise.T if self.config.color_noise else None
            images = mirror(images.to(part.device, non_blocking=True), flips)  # bytes until they are on the device
            yield to_numbers(images, self.standardize, noise), labels

    def validation(self, part: Part) -> Iterable[Batch]:
        """Returns this process's share of the validation images, by their centre crops."""
        return evaluation_batches(
            self.val,
            center_crop,
            self.config.crop,
            self.standardize,
            samples=torch.arange(part.rank, len(self.val), part.processes),
            workers=self.workers,
            device=part.device,
            bad=self.bad,
        )

    def describe(self) -> dict[str, Any]:
        """Returns what a user of the weights needs besides the network."""
        facts = {"dataset": self.name, "classes": list(self.classes), "standardize": asdict(self.standardize)}
        return {**facts, "photographs": {**asdict(self.config), "size": self.train.size}}  # a store has its own size


def _read_piece(
    source: ImageSource, config: Photographs, seed: int, epoch: int, piece: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Problems]:
    """Reads one piece of a batch.

    Returns images, (N, H, W, 3) bytes, labels, (N,), which to mirror, (N,), normal numbers for the noise, (N, 3), and
    problems.
    """
    samples = piece.tolist()
    images = shared_bytes(len(samples), config.crop, config.crop, 3)
    labels, flips = torch.full((len(samples),), SKIP), torch.zeros(len(samples), dtype=torch.bool)
    noise = torch.zeros(len(samples), 3)
    # Items are set through NumPy: setting one of a tensor takes twenty times as long.
    pixels, label, flip, normal = (tensor.numpy() for tensor in (images, labels, flips, noise))
    known = source.labels.numpy()
    problems: Problems = []
    good: list[int] = []
    bad: list[int] = []
    for place, number in enumerate(samples):
        sample = number if number >= 0 else ~number
        choice = choose(seed, epoch, sample, zoomed=config.zoom is not None)
        try:
            pixels[place] = random_crop(source.pixels(sample), config, choice)
        except BadImageError as error:
            problems.append((source.name(sample), str(error)))
            bad.append(place)
            continue
        normal[place], flip[place] = choice.noise, config.flip and choice.flip
        good.append(place)
        if number >= 0:
            label[place] = known[sample]
    for place, other in zip(bad, itertools.cycle(good)):  # if no image is good, zeros stay
        images[place], noise[place], flips[place] = images[other], noise[other], flips[other]
    return images, labels, flips, noise, problems
