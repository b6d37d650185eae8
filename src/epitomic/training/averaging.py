"""An exponential moving average of the weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class WeightAverage:
    """A copy of a network whose weights follow the network's own slowly.

    The decay rises with step t as (1 + t) / (10 + t) until it reaches its value, so the first steps are soon forgotten.

    Args:
        model: The network to follow.
        decay: Share of the old average that each step keeps.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self._pairs = (_floats(self.model), _floats(model))

    def update(self, step: int) -> None:
        """Updates the average after optimiser step ``step``, counted from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        average, own = self._pairs
        torch._foreach_lerp_(average, own, 1 - decay)


def _floats(model: nn.Module) -> list[Tensor]:
    """Returns parameters and running statistics, without the step counters of batch norms."""
    return [t.detach() for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]
