"""Where the time of a training step goes: each layer alone, forward and backward."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class LayerTime:
    """Milliseconds of one layer on one batch, the medians."""

    name: str
    type: str
    forward: float
    backward: float


def layer_times(model: nn.Module, x: Tensor, repetitions: int = 3) -> list[LayerTime]:
    """Times each layer of a network alone, on what the layers before it make of ``x``.

    Args:
        model: The network; its weights and gradients are left as they are.
        x: A batch of standardised images.
        repetitions: How many times; the median counts.
    """
    inputs: list[tuple[str, nn.Module, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda m, given, _, name=name: inputs.append((name, m, given[0].detach())))
        for name, module in model.named_modules()
        if not list(module.children())
    ]
    training = model.training
    try:
        model.eval()
        with torch.no_grad():
            model(x)
    finally:
        for hook in hooks:
            hook.remove()
    times = []
    for number, (name, module, given) in enumerate(inputs):
        forward, backward = [], []
        for _ in range(repetitions):
            one, two = _time(module, given, needs_input=number > 0)
            forward.append(1000 * one)
            backward.append(1000 * two)
        times.append(LayerTime(name, type(module).__name__, statistics.median(forward), statistics.median(backward)))
    model.train(training)
    return times


def _time(module: nn.Module, given: Tensor, *, needs_input: bool) -> tuple[float, float]:
    x = given.requires_grad_(needs_input)
    began = time.perf_counter()
    y = module(x)
    middle = time.perf_counter()
    wanted = [p for p in module.parameters() if p.requires_grad] + ([x] if needs_input else [])
    if wanted and y.requires_grad:
        torch.autograd.grad(y, wanted, torch.ones_like(y), allow_unused=True)
    return middle - began, time.perf_counter() - middle
