"""Measures how long each layer of a network takes in a training step, forward and backward.

These are quick figures for the report. To compare timings, use `epitomic.bench`.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epitomic.evaluation import evaluating


@dataclass(frozen=True)
class LayerTime:
    """Median milliseconds of one layer on one batch.

    Attributes:
        name: Name of the layer in the network.
        type: Name of the layer's class.
        forward: Milliseconds of the forward pass.
        backward: Milliseconds of the backward pass.
    """

    name: str
    type: str
    forward: float
    backward: float

    @property
    def total(self) -> float:
        """Milliseconds of both passes."""
        return self.forward + self.backward


def time_layers(model: nn.Module, x: Tensor, repetitions: int = 3) -> list[LayerTime]:
    """Times each layer of a network by itself, on the input that it gets when the network computes ``x``.

    Args:
        model: The network. Its weights and gradients stay as they are.
        x: A batch of standardised images.
        repetitions: How many times to time each layer. The median counts.
    """
    inputs: list[tuple[str, nn.Module, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda m, given, _, name=name: inputs.append((name, m, given[0].detach())))
        for name, module in model.named_modules()
        if not list(module.children())
    ]
    with evaluating(model):
        try:
            with torch.no_grad():
                model(x)
        finally:
            for hook in hooks:
                hook.remove()
        times = []
        for number, (name, module, given) in enumerate(inputs):
            pairs = [_time(module, given, needs_input=number > 0) for _ in range(repetitions)]
            forward, backward = (1000 * statistics.median(seconds) for seconds in zip(*pairs, strict=True))
            times.append(LayerTime(name, type(module).__name__, forward, backward))
    return times


def _time(module: nn.Module, given: Tensor, *, needs_input: bool) -> tuple[float, float]:
    """Returns the seconds of the forward and the backward pass. ``needs_input`` is False for images."""
    x = given.requires_grad_(needs_input)
    began = time.perf_counter()
    y = module(x)
    middle = time.perf_counter()
    wanted = [p for p in module.parameters() if p.requires_grad] + ([x] if needs_input else [])
    if wanted and y.requires_grad:
        torch.autograd.grad(y, wanted, torch.ones_like(y), allow_unused=True)
    return middle - began, time.perf_counter() - middle
