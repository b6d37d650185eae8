"""Standardisation: shifts and scales pixels so that the training set has mean 0 and standard deviation 1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from epitomic.support.errors import UserError


@dataclass(frozen=True)
class Standardize:
    """Subtracts a mean from each channel and divides it by a standard deviation.

    Attributes:
        mean: Mean of each channel, for pixels from 0 to 1.
        std: Standard deviation of each channel, for pixels from 0 to 1.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, images: Tensor) -> Standardize:
        """Measures uint8 images, (N, C, H, W)."""
        counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)])
        weights, values = counts.double() / counts.sum(1, keepdim=True), torch.arange(256).double() / 255
        mean = (weights * values).sum(1)
        std = ((weights * values.square()).sum(1) - mean.square()).clamp(min=1e-12).sqrt()
        return cls(tuple(mean.tolist()), tuple(std.tolist()))

    @classmethod
    def read(cls, config: dict[str, Any], channels: int | None, path: Path) -> Standardize:
        """Reads the standardisation of a network from its ``config``, which is the file ``path``."""
        values = config.get("standardize")
        found: dict[str, tuple[float, ...]] = {}
        for key in ("mean", "std"):
            entry: Any = values.get(key) if isinstance(values, dict) else None
            numbers = isinstance(entry, list) and all(isinstance(v, int | float) for v in entry)
            if not numbers or len(entry) != channels:
                raise UserError(f"{path} has no 'standardize' with a {key} of {channels} channels")
            found[key] = tuple(map(float, entry))
        return cls(**found)

    def __call__(self, images: Tensor) -> Tensor:
        """Standardises images, (N, C, H, W), with pixels from 0 to 1, in place."""
        mean, std = (
            torch.tensor(v, dtype=images.dtype, device=images.device).reshape(1, -1, 1, 1)
            for v in (self.mean, self.std)
        )
        return images.sub_(mean).div_(std)
