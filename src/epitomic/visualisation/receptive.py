"""Which part of the image a unit of a convolutional layer sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epitomic.errors import UserError, unknown
from epitomic.layers import EpitomicConv2d, MaxoutConv2d
from epitomic.models.whitening import LocalWhitening

Sizes = tuple[int, int, int]  # kernel, stride, padding, of one axis


@dataclass(frozen=True)
class Window:
    """The square of pixels that unit (i, j) sees: ``size`` pixels from ``start + i * step``, along each axis."""

    size: int
    step: int
    start: int


def convolutional_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers with filters over an image, by name, in the network's order.

    A `LocalWhitening` is none of them: it makes an image of an image, and what follows it is the first layer.
    """
    kinds = EpitomicConv2d | MaxoutConv2d | nn.Conv2d
    return [(n, m) for n, m in model.named_modules() if isinstance(m, kinds) and not isinstance(m, LocalWhitening)]


def find_layer(model: nn.Module, which: str) -> tuple[str, nn.Module]:
    """A layer by its name or its number among the convolutional ones, counted from 1."""
    layers = convolutional_layers(model)
    if which.isdigit():
        if not 1 <= int(which) <= len(layers):
            raise UserError(f"--layer must be from 1 to {len(layers)}, got {which}")
        return layers[int(which) - 1]
    for name, module in layers:
        if which == name:
            return name, module
    raise unknown("layer", which, [name for name, _ in layers])


@torch.no_grad()
def receptive_windows(model: nn.Module, x: Tensor) -> dict[str, Window]:
    """What the units of each convolutional layer see, for a network whose layers follow one another.

    Args:
        model: The network.
        x: An image to run through it, (1, C, H, W).
    """
    windows: dict[str, Window] = {}
    current = Window(size=1, step=1, start=0)

    def pass_through(name: str, module: nn.Module) -> None:
        nonlocal current
        sizes = _sizes(module)
        if sizes is not None:
            kernel, stride, padding = sizes
            current = Window(
                size=current.size + (kernel - 1) * current.step,
                step=current.step * stride,
                start=current.start - padding * current.step,
            )
            windows[name] = current

    hooks = [
        module.register_forward_hook(lambda m, _, __, name=name: pass_through(name, m))
        for name, module in model.named_modules()
        if _sizes(module) is not None
    ]
    training = model.training
    try:
        model.eval()(x)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return windows


def _sizes(module: nn.Module) -> Sizes | None:
    """Kernel, stride and padding of the vertical axis; all networks here have square ones."""
    if isinstance(module, EpitomicConv2d):
        return module.geometry.kernel[0], module.geometry.stride[0], module.geometry.padding[0]
    if isinstance(module, MaxoutConv2d):
        return module.kernel_size[0], module.stride[0], module.padding[0]
    if isinstance(module, nn.Conv2d):
        padding = module.padding[0] if isinstance(module.padding, tuple) else 0
        return module.kernel_size[0], module.stride[0], int(padding)
    if isinstance(module, nn.MaxPool2d):
        kernel, stride, padding = (
            v if isinstance(v, int) else v[0] for v in (module.kernel_size, module.stride, module.padding)
        )
        return int(kernel), int(stride), int(padding)
    return None
