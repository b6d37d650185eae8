"""How often each of the D x D positions of an epitome wins, over many images."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epitomic.analysis.matches import epitomic_layers, recording
from epitomic.evaluation import evaluating
from epitomic.geometry import Pair


@dataclass(frozen=True)
class PositionUse:
    """How often each position won in one layer.

    Attributes:
        name: Name of the layer.
        pool: Height and width D of the window of positions.
        counts: Number of wins, (K, D*D). A row is one output channel: a mini-epitome, or a part of a topographic one.
    """

    name: str
    pool: Pair
    counts: Tensor

    @property
    def shares(self) -> Tensor:
        """Wins of each position as a share of its epitome's wins, (K, D*D)."""
        return self.counts / self.counts.sum(1, keepdim=True).clamp(min=1)

    @property
    def overall(self) -> Tensor:
        """Wins of each position as a share of all wins in the layer, (D, D)."""
        total = self.counts.sum(0)
        return (total / total.sum().clamp(min=1)).reshape(self.pool)

    @property
    def dead(self) -> Tensor:
        """True for positions that never won, (K, D*D)."""
        return self.counts == 0


@torch.no_grad()
def position_use(model: nn.Module, batches: Iterable[Tensor]) -> list[PositionUse]:
    """Counts the winning positions of every epitomic layer over ``batches`` of standardised images."""
    layers = epitomic_layers(model)
    counts = {name: torch.zeros(m.out_channels, math.prod(m.geometry.pool), dtype=torch.int64) for name, m in layers}
    with evaluating(model), recording(model) as matches:
        for x in batches:
            model(x)
            for match in matches:
                counts[match.name] += count_positions(match.positions, counts[match.name].shape[1])
            matches.clear()
    return [PositionUse(name, layer.geometry.pool, counts[name]) for name, layer in layers]


def count_positions(positions: Tensor, size: int) -> Tensor:
    """Counts how often each position wins in each channel: (N, K, oh, ow) positions -> (K, size).

    >>> count_positions(torch.tensor([[[[0, 3]], [[1, 1]]]]), 4)
    tensor([[1, 0, 0, 1],
            [0, 2, 0, 0]])
    """
    channels = positions.shape[1]
    keys = positions.cpu() + size * torch.arange(channels).reshape(1, -1, 1, 1)
    return torch.bincount(keys.flatten(), minlength=channels * size).reshape(channels, size)
