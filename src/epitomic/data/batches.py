"""From a split to the batches of a step: order, augmentation, standardisation, all by (seed, epoch, batch)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from epitomic.data.augment import Augmentation, apply, choose, cut_out
from epitomic.data.sets import Split
from epitomic.errors import UserError
from epitomic.rng import generator


@dataclass(frozen=True)
class Standardize:
    """Bytes to numbers of mean 0 and standard deviation 1 over the training set, channel by channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, split: Split) -> Standardize:
        """The mean and standard deviation of these images, on the scale of 0 to 1."""
        counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in split.images.unbind(1)])
        weights, values = counts.double() / counts.sum(1, keepdim=True), torch.arange(256).double() / 255
        mean = (weights * values).sum(1)
        std = ((weights * values.square()).sum(1) - mean.square()).clamp(min=1e-12).sqrt()
        return cls(tuple(mean.tolist()), tuple(std.tolist()))

    @classmethod
    def read(cls, config: dict[str, Any], channels: int | None, path: Path) -> Standardize:
        """What a network was trained with, by its config.json."""
        values = config.get("standardize")
        found = []
        for key in ("mean", "std"):
            entry: Any = values.get(key) if isinstance(values, dict) else None
            numbers = isinstance(entry, list) and all(isinstance(v, int | float) for v in entry)
            if not numbers or len(entry) != channels:
                raise UserError(f"{path} has no 'standardize' with a {key} of {channels} channels")
            found.append(tuple(map(float, entry)))
        return cls(mean=found[0], std=found[1])

    def __call__(self, images: Tensor) -> Tensor:
        """(N, C, H, W) on the scale of 0 to 1, standardised in place."""
        mean, std = (
            torch.tensor(v, dtype=images.dtype, device=images.device).reshape(1, -1, 1, 1)
            for v in (self.mean, self.std)
        )
        return images.sub_(mean).div_(std)


class TrainingBatches:
    """The batches of each epoch.

    Every epoch visits the samples in a new order, in whole batches: the samples of a last, incomplete one are left out
    of that epoch.

    Args:
        split: What to learn from.
        batch_size: Of the global batch.
        augmentation: What to change at random.
        standardize: What to do after that.
        seed: Of the run.
    """

    def __init__(
        self, split: Split, batch_size: int, augmentation: Augmentation, standardize: Standardize, seed: int
    ) -> None:
        self.split, self.batch_size, self.seed = split, batch_size, seed
        self.augmentation, self.standardize = augmentation, standardize
        self.mirrored: Tensor | None = None  # of the even epochs, (samples,)
        if augmentation.flip and augmentation.alternate:
            self.mirrored = torch.randint(0, 2, (len(split),), generator=generator("flip", seed), dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.split) // self.batch_size

    def order(self, epoch: int) -> Tensor:
        """The samples of an epoch, (batches, batch_size)."""
        order = torch.randperm(len(self.split), generator=generator("order", self.seed, epoch))
        return order[: len(self) * self.batch_size].reshape(len(self), self.batch_size)

    def get(self, order: Tensor, epoch: int, batch: int, part: slice) -> tuple[Tensor, Tensor]:
        """Images and labels of a part of a batch.

        Args:
            order: What `order` gave for this epoch.
            epoch: Which epoch,
            batch: and which batch of it.
            part: Which samples of the global batch.
        """
        chosen = order[batch, part]
        samples = self.split.take(chosen)
        images = samples.images.float().div_(255)
        draws = generator("augment", self.seed, epoch, batch)
        choices = choose(self.augmentation, self.batch_size, images.shape[-1], draws)
        choices = {name: values[part] for name, values in choices.items()}
        if self.mirrored is not None:
            choices["flip"] = self.mirrored[chosen] ^ bool(epoch % 2)
        images = self.standardize(apply(self.augmentation, choices, images))
        return cut_out(self.augmentation, choices, images), samples.labels
