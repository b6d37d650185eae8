"""The parameters, multiply-adds and output shapes of a network, layer by layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from epitomic.layers import EpitomicConv2d, MaxoutConv2d, MaxPoolConv2d


@dataclass(frozen=True)
class LayerCount:
    """The counts of one layer.

    Attributes:
        name: Name of the layer in the model.
        type: Name of the layer's class.
        output: Shape of the output, without the batch.
        parameters: Number of learned parameters.
        multiply_adds: Multiply-adds for one image, with each inner product counted in full, as the paper counts.
    """

    name: str
    type: str
    output: tuple[int, ...]
    parameters: int
    multiply_adds: int


@dataclass(frozen=True)
class Count:
    """The counts of a network: the sums, and its layers in the order they run."""

    parameters: int
    multiply_adds: int
    layers: tuple[LayerCount, ...]


def count(model: nn.Module, input_size: tuple[int, int, int]) -> Count:
    """Counts the parameters and multiply-adds of a network. Only shapes go through it, so nothing is computed.

    Args:
        model: Any network of this package, on any device, "meta" included.
        input_size: Channels, height and width of one image.
    """
    layers: list[LayerCount] = []
    leaves = [(name, module) for name, module in model.named_modules() if not list(module.children())]
    parameters = {name: learned(leaf) for name, leaf in leaves}  # counted now, as the call below swaps them

    def record(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        shape = tuple(output.shape[1:])
        products = _multiply_adds(module, tuple(inputs[0].shape[1:]), shape)
        layers.append(LayerCount(name, type(module).__name__, shape, parameters[name], products))

    hooks = [leaf.register_forward_hook(partial(record, name)) for name, leaf in leaves]
    training, own = model.training, model.state_dict()
    try:
        with FakeTensorMode(), torch.no_grad():
            state = {name: torch.empty(t.shape, dtype=t.dtype) for name, t in own.items()}
            dtype = next((t.dtype for t in own.values() if t.is_floating_point()), None)
            torch.func.functional_call(model.eval(), state, (torch.empty(1, *input_size, dtype=dtype),))
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return Count(learned(model), sum(layer.multiply_adds for layer in layers), tuple(layers))


def learned(module: nn.Module) -> int:
    """Returns the number of learned parameters."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def _multiply_adds(module: nn.Module, input: tuple[int, ...], output: tuple[int, ...]) -> int:
    """Returns outputs times inner products per output times the length of an inner product."""
    values = math.prod(output)
    if isinstance(module, MaxPoolConv2d):  # one inner product per response of the convolution
        return module.weight.numel() * math.prod(module.geometry.responses(*input[1:]))
    if isinstance(module, EpitomicConv2d):
        return values * math.prod(module.pool_size) * module.in_channels * math.prod(module.kernel_size)
    if isinstance(module, MaxoutConv2d):
        return values * module.pieces * module.in_channels * math.prod(module.kernel_size)
    if isinstance(module, nn.Conv2d | nn.Linear):
        return values * module.weight[0].numel()
    return 0
