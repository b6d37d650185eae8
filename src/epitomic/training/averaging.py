"""An exponential moving average of the weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class WeightAverage:
    """A copy of the model whose weights follow the model's own, slowly.

    The decay rises from 0 towards its value as (1 + t) / (10 + t), so that the first steps are soon forgotten.

    Args:
        model: What to follow.
        decay: Share of the old average that a step keeps.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self._pairs = (_floats(self.model), _floats(model))

    def update(self, step: int) -> None:
        """After optimiser step ``step``, the first being 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        average, own = self._pairs
        torch._foreach_lerp_(average, own, 1 - decay)


def _floats(model: nn.Module) -> list[Tensor]:
    """Parameters and running statistics; the counters of batch norms play no part in evaluation."""
    return [t.detach() for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]
