"""Feeds a training from photographs on disk: the paper's input pipeline.

An epoch is a new order of all samples, a function of (seed, epoch). What happens to a sample is a function of (seed,
epoch, sample). Worker processes make whole pieces of batches, and torch's ``DataLoader`` gives them out in order, so
that neither the number of workers nor that of processes changes a bit, and a stream can begin at any batch.

Every sample is seen once in an epoch: the last batch may be a smaller one. Its empty places, and those of bad images,
have other images of the batch again, which do not count: zeros would enter the statistics of batch norms.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from epitomic.data.color import ColorStatistics
from epitomic.data.crops import Photographs, center_crop, choose, random_crop, ten_crops
from epitomic.data.feed import SKIP, Batch, Part
from epitomic.data.pixels import BadImageError
from epitomic.data.views import BadImages, ImageSource, Problems, evaluation_batches, load_in_order, to_numbers
from epitomic.rng import generator


class PhotographFeed:
    """See `Feed`.

    Args:
        name: Of the set.
        train: What to learn from.
        val: What to validate on, by the centre crop, and to test on, by ten crops.
        statistics: Of the colours of ``train``.
        config: What to do to the images.
        batch_size: Of the global batch.
        seed: Of the run.
        workers: Processes that read images; 0: the training's own.
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
        """How many there are to learn from."""
        return len(self.train)

    def count(self, batch: int) -> int:
        """All batches are whole, but for the last one of an epoch."""
        return min(self.batch_size, len(self.train) - batch * self.batch_size)

    def order(self, epoch: int) -> Tensor:
        """The samples of an epoch, (batches, batch_size); in an empty place at its end, ~s: s again, not to count."""
        order = torch.randperm(len(self.train), generator=generator("order", self.seed, epoch))
        last = order[(len(self) - 1) * self.batch_size :]
        room = len(self) * self.batch_size - len(order)
        return torch.cat((order, ~last[torch.arange(room) % len(last)])).reshape(len(self), self.batch_size)

    def stream(self, epoch: int, batch: int, part: Part) -> Iterator[Batch]:
        """The pieces of an epoch's batches, from ``batch`` on."""
        order = self.order(epoch)[batch:]
        pieces = [row[places] for row in order for places in part.slices(self.batch_size)]
        dataset = _Pieces(self.train, pieces, self.config, self.seed, epoch)
        for images, labels, normal, problems in load_in_order(dataset, self.workers, part.device):
            self.bad.note(problems)
            noise = normal @ self.noise.T if self.config.color_noise else None
            yield to_numbers(images.to(part.device, non_blocking=True), self.standardize, noise), labels

    def validation(self, part: Part) -> Iterable[Batch]:
        """This process's share of the validation set, the centre crop of each image."""
        return self._evaluate(center_crop, part.device, torch.arange(part.rank, len(self.val), part.processes))

    def tests(self, device: torch.device) -> dict[str, Iterable[Batch]]:
        """The validation set again, as in the paper: ten crops of each image, and the centre crop."""
        return {"test": self._evaluate(ten_crops, device), "center": self._evaluate(center_crop, device)}

    def _evaluate(self, views: Any, device: torch.device, samples: Tensor | None = None) -> Iterable[Batch]:
        return evaluation_batches(
            self.val,
            views,
            self.config.crop,
            self.standardize,
            samples=samples,
            workers=self.workers,
            device=device,
            bad=self.bad,
        )

    def describe(self) -> dict[str, Any]:
        """What a user of the weights needs besides the network."""
        return {
            "dataset": self.name,
            "classes": list(self.classes),
            "standardize": asdict(self.standardize),
            "photographs": {**asdict(self.config), "size": self.train.size},  # a store's own, where there is one
        }


class _Pieces(Dataset[Any]):
    """Pieces of batches: images (N, H, W, 3) as bytes, labels (N,), normal numbers for the noise (N, 3), problems."""

    def __init__(self, source: ImageSource, pieces: list[Tensor], config: Photographs, seed: int, epoch: int) -> None:
        self.source, self.pieces, self.config, self.seed, self.epoch = source, pieces, config, seed, epoch

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, piece: int) -> tuple[Tensor, Tensor, Tensor, Problems]:
        samples, crop = self.pieces[piece].tolist(), self.config.crop
        images = torch.zeros(len(samples), crop, crop, 3, dtype=torch.uint8)
        labels, noise = torch.full((len(samples),), SKIP), torch.zeros(len(samples), 3)
        problems: Problems = []
        good: list[int] = []
        bad: list[int] = []
        for place, number in enumerate(samples):
            sample = number if number >= 0 else ~number
            choice = choose(self.seed, self.epoch, sample)
            try:
                images[place].numpy()[:] = random_crop(self.source.read(sample), self.config, choice)
            except BadImageError as error:
                problems.append((self.source.name(sample), str(error)))
                bad.append(place)
                continue
            noise[place] = torch.tensor(choice.noise)
            good.append(place)
            if number >= 0:
                labels[place] = self.source.labels[sample]
        for place, other in zip(bad, itertools.cycle(good)):  # none if there are no good ones
            images[place], noise[place] = images[other], noise[other]
        return images, labels, noise, problems
