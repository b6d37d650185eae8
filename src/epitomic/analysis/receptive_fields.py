"""Which part of the image a unit of a convolutional layer sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epitomic.evaluation import evaluating
from epitomic.layers import EpitomicConv2d, MaxoutConv2d, MaxPoolConv2d
from epitomic.models.whitening import LocalWhitening
from epitomic.support.errors import UserError, unknown


@dataclass(frozen=True)
class Window:
    """The square of pixels that a unit sees.

    Unit (i, j) sees ``size`` pixels from row ``start + i * step`` and from column ``start + j * step``.
    """

    size: int
    step: int
    start: int


def convolutional_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Names and layers that have filters over an image, in the order of the network.

    A `LocalWhitening` does not count, because it turns an image into an image. The layer after it is the first one.
    """
    kinds = EpitomicConv2d | MaxPoolConv2d | MaxoutConv2d | nn.Conv2d
    return [(n, m) for n, m in model.named_modules() if isinstance(m, kinds) and not isinstance(m, LocalWhitening)]


def find_layer(model: nn.Module, which: str) -> tuple[str, nn.Module]:
    """Finds a convolutional layer by its name, or by its number counted from 1."""
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
    """What the units of each convolutional or pooling layer see, by the layer's name.

    Args:
        model: A network whose layers follow one another.
        x: An image to run through it, (1, C, H, W).
    """
    windows: dict[str, Window] = {}
    current = Window(size=1, step=1, start=0)

    def pass_through(name: str, sizes: tuple[int, int, int]) -> None:
        nonlocal current
        kernel, stride, padding = sizes
        windows[name] = current = Window(
            size=current.size + (kernel - 1) * current.step,
            step=current.step * stride,
            start=current.start - padding * current.step,
        )

    hooks = [
        module.register_forward_hook(lambda *_, name=name, sizes=sizes: pass_through(name, sizes))
        for name, module in model.named_modules()
        if (sizes := _sizes(module)) is not None
    ]
    try:
        with evaluating(model):
            model(x)
    finally:
        for hook in hooks:
            hook.remove()
    return windows


def _sizes(module: nn.Module) -> tuple[int, int, int] | None:
    """Kernel, stride and padding along the vertical axis. All networks here have square windows."""
    if isinstance(module, EpitomicConv2d):
        g = module.geometry
        return g.kernel[0], g.stride[0], g.padding[0]
    if isinstance(module, MaxPoolConv2d):  # the convolution, then the pooling over its responses
        p = module.geometry
        pooled = (p.pool[0] - 1) * p.stride[0], p.pool_padding[0] * p.stride[0]
        return p.kernel[0] + pooled[0], p.stride[0] * p.pool_stride[0], p.padding[0] + pooled[1]
    if isinstance(module, MaxoutConv2d | nn.Conv2d | nn.MaxPool2d):
        given = (module.kernel_size, module.stride, module.padding)
        kernel, stride, padding = (v[0] if isinstance(v, tuple) else 0 if isinstance(v, str) else v for v in given)
        return int(kernel), int(stride), int(padding)
    return None
