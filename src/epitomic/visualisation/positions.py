"""Which of the D x D positions of each epitome win, over many images, and which never do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from epitomic.geometry import Pair
from epitomic.visualisation.matches import epitomic_layers, recording
from epitomic.visualisation.style import ACCENT, DEAD, Picture, tile


@dataclass(frozen=True)
class PositionUse:
    """How often each position won in one layer.

    Attributes:
        name: Of the layer.
        pool: D, height and width of the window of positions.
        counts: Wins, (K, D*D), one row per output channel: a mini-epitome, or a part of a topographic one.
    """

    name: str
    pool: Pair
    counts: Tensor

    @property
    def shares(self) -> Tensor:
        """Each row's wins as shares of 1, (K, D*D)."""
        return self.counts / self.counts.sum(1, keepdim=True).clamp(min=1)

    @property
    def overall(self) -> Tensor:
        """Shares over all epitomes, (D, D)."""
        total = self.counts.sum(0)
        return (total / total.sum().clamp(min=1)).reshape(self.pool)

    @property
    def dead(self) -> Tensor:
        """Which positions never won, (K, D*D)."""
        return self.counts == 0

    def picture(self, columns: int | None = None, cell: int = 6) -> Picture:
        """A D x D square per epitome: the darker, the more wins; positions that never won are red."""
        dh, dw = self.pool
        strength = (self.shares / self.shares.amax(1, keepdim=True).clamp(min=1e-9)).reshape(-1, dh, dw)
        dead = self.dead.reshape(-1, dh, dw)
        squares = []
        for row, gone in zip(strength, dead, strict=True):
            square = np.empty((dh, dw, 4))
            square[..., :3] = ACCENT
            square[..., 3] = 0.06 + 0.94 * row.numpy()
            square[gone.numpy()] = (*DEAD, 1.0)
            squares.append(square.repeat(cell, 0).repeat(cell, 1))
        return tile(squares, columns or min(len(squares), 32), gap=4)


@torch.no_grad()
def position_use(model: nn.Module, batches: Iterable[Tensor]) -> list[PositionUse]:
    """Counts the winners of every epitomic layer over ``batches`` of standardised images."""
    layers = epitomic_layers(model)
    counts = {name: torch.zeros(m.out_channels, math.prod(m.geometry.pool), dtype=torch.int64) for name, m in layers}
    training = model.training
    model.eval()
    with recording(model) as matches:
        for x in batches:
            model(x)
            for match in matches:
                counts[match.name] += count_positions(match.positions, counts[match.name].shape[1])
            matches.clear()
    model.train(training)
    return [PositionUse(name, layer.geometry.pool, counts[name]) for name, layer in layers]


def count_positions(positions: Tensor, size: int) -> Tensor:
    """(N, K, oh, ow) winners -> (K, size) counts.

    >>> count_positions(torch.tensor([[[[0, 3]], [[1, 1]]]]), 4)
    tensor([[1, 0, 0, 1],
            [0, 2, 0, 0]])
    """
    channels = positions.shape[1]
    keys = positions.cpu() + size * torch.arange(channels).reshape(1, -1, 1, 1)
    return torch.bincount(keys.flatten(), minlength=channels * size).reshape(channels, size)
