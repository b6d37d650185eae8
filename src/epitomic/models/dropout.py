"""Dropout whose masks depend on the training step and the place in the global batch, not on the process.

`torch.nn.Dropout` draws from one generator per process. A resumed run, or the same batch on two processes, would get
other masks. Here a mask is a function of seed, step, layer and place in the batch. So there is nothing to save, and any
split of a batch over processes or micro-batches draws the same masks.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.support.rng import generator

BLOCK = 16  # samples per draw: large enough for few calls, small enough to draw little beyond a process's own samples


class Dropout(nn.Module):
    """``nn.Dropout``, with masks that depend on a key once `key_dropout` has set one.

    Args:
        p: Probability of a zero.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p
        self.key: tuple[int, ...] | None = None
        self.first = 0

    def forward(self, x: Tensor) -> Tensor:
        """Zeroes values with probability p and divides the rest by 1 - p while training. Returns ``x`` otherwise."""
        if not self.training or self.p == 0:
            return x
        if self.key is None:
            return F.dropout(x, self.p, training=True)
        return x * self._mask(x)

    def _mask(self, x: Tensor) -> Tensor:
        shape = (x.shape[2], x.shape[3], x.shape[1]) if x.dim() == 4 else x.shape[1:]  # channels last, like most x
        size, first, last = math.prod(shape), self.first, self.first + x.shape[0]
        blocks = range(first // BLOCK, -(-last // BLOCK))
        # Each 64-bit draw gives four 16-bit numbers to compare with p. This is several times faster than bernoulli_.
        bits = torch.empty((len(blocks), -(-BLOCK * size // 4)), dtype=torch.int64)
        for row, block in zip(bits, blocks, strict=True):
            row.random_(-(2**63), None, generator=generator("dropout", *self.key or (), block))
        levels = bits.view(torch.int16)[:, : BLOCK * size].reshape(-1, *shape)[first - blocks.start * BLOCK :]
        dropped = min(round(self.p * 2**16), 2**16 - 1)
        mask = (levels[: x.shape[0]] >= dropped - 2**15).to(x.dtype).mul_(1 / (1 - dropped / 2**16))
        if x.dim() == 4:
            mask = mask.permute(0, 3, 1, 2)  # the mask does not depend on the format of x
        return mask.to(x.device)

    def extra_repr(self) -> str:
        """Returns the rate, for ``print(model)``."""
        return f"p={self.p}"


def key_dropout(model: nn.Module, seed: int, step: int, first: int) -> None:
    """Sets the key of the masks of the next forward pass.

    Args:
        model: The network with the `Dropout` layers.
        seed: Seed of the run.
        step: Training step.
        first: Place in the global batch of the first sample that the model will see.
    """
    layers = (module for module in model.modules() if isinstance(module, Dropout))
    for index, layer in enumerate(layers):
        layer.key, layer.first = (seed, step, index), first
