"""What the networks share: the four kinds of pooled layer, channel scaling, initialisation."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from epitomic.errors import UserError
from epitomic.layers import EpitomicConv2d, MaxoutConv2d, NormConv2d
from epitomic.models.dropout import Dropout


@runtime_checkable
class FitsImages(Protocol):
    """A network that takes something from the images before it learns, such as a whitening."""

    def fit(self, images: Tensor) -> None:
        """Looks at some training images, (N, C, H, W)."""
        ...


def scale_channels(channels: int, width: float) -> int:
    """``channels`` times ``width``, rounded to a multiple of 8, at least 8.

    >>> scale_channels(96, 1.0), scale_channels(96, 0.25), scale_channels(96, 0.01)
    (96, 24, 8)
    """
    return max(8, 8 * round(channels * width / 8))


def scale_epitomes(epitomes: int, width: float) -> int:
    """``epitomes`` times ``width``, rounded, at least 1."""
    return max(1, round(epitomes * width))


def convolution(
    in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, padding: int = 0, normalize: bool = False
) -> nn.Conv2d:
    """A plain convolution, with Eq. 3 or without."""
    layer = NormConv2d if normalize else nn.Conv2d
    return layer(in_channels, out_channels, kernel, stride=stride, padding=padding)


def full_layer(inputs: int, outputs: int, dropout: float, *, batch_norm: bool = False) -> nn.Sequential:
    """A fully-connected layer: linear, batch normalisation if asked for, ReLU, dropout."""
    parts: OrderedDict[str, nn.Module] = OrderedDict(linear=nn.Linear(inputs, outputs))
    if batch_norm:
        parts["norm"] = nn.BatchNorm1d(outputs)
    parts["relu"] = nn.ReLU()
    parts["dropout"] = Dropout(dropout)
    return nn.Sequential(parts)


def initialize(model: nn.Module) -> None:
    """Fills the weights so that activations keep their size from layer to layer at the start.

    Plain convolutions and fully-connected layers in front of a ReLU: normal with variance 2 / fan-in (He et al. 2015).
    A layer that keeps the maximum of several responses has larger outputs already, by 3 to 5 times in the mean square:
    variance 1 / (3 fan-in), which is the layers' own default. Biases are zero. The softmax layer starts at a hundredth,
    so that all classes start about equal.
    """
    linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
    pooled = {
        conv
        for block in model.modules()
        if isinstance(block, nn.Sequential) and any(isinstance(m, nn.MaxPool2d) for m in block)
        for conv in block
        if isinstance(conv, nn.Conv2d)
    }
    for module in model.modules():
        if isinstance(module, EpitomicConv2d | MaxoutConv2d | nn.Conv2d | nn.Linear):
            if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module not in pooled):
                fan_in = module.weight[0].numel()
                nn.init.normal_(module.weight, std=math.sqrt(2 / fan_in))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    nn.init.normal_(linear[-1].weight, std=0.01)


def check_image_size(model: str, image_size: int, least: int, most: int | None = None) -> None:
    """An error that names the sizes that fit, if this one does not."""
    if image_size < least or (most is not None and image_size > most):
        fits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise UserError(f"image_size of {model} networks must be {fits} pixels, got {image_size}")
