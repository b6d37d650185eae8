"""Parts that the networks share: channel scaling, layers, initialisation, a check of the image size."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from epitomic.layers import EpitomicConv2d, MaxoutConv2d, MaxPoolConv2d
from epitomic.models.dropout import Dropout
from epitomic.support.errors import UserError


@runtime_checkable
class FitsImages(Protocol):
    """A network that takes statistics from images before training, such as those of a whitening."""

    def fit(self, images: Tensor) -> None:
        """Takes the statistics from some training images, (N, C, H, W)."""


def scale_channels(channels: int, width: float) -> int:
    """Returns ``channels`` times ``width``, rounded to a multiple of 8, at least 8.

    >>> scale_channels(96, 1.0), scale_channels(96, 0.25), scale_channels(96, 0.01)
    (96, 24, 8)
    """
    return max(8, 8 * round(channels * width / 8))


def scale_epitomes(epitomes: int, width: float) -> int:
    """Returns ``epitomes`` times ``width``, rounded, at least 1."""
    return max(1, round(epitomes * width))


def full_layer(inputs: int, outputs: int, dropout: float, *, batch_norm: bool = False) -> nn.Sequential:
    """Makes a fully-connected layer: linear, batch normalisation if asked for, ReLU, dropout."""
    parts: OrderedDict[str, nn.Module] = OrderedDict(linear=nn.Linear(inputs, outputs))
    if batch_norm:
        parts["norm"] = nn.BatchNorm1d(outputs)
    parts["relu"] = nn.ReLU()
    parts["dropout"] = Dropout(dropout)
    return nn.Sequential(parts)


def initialize(model: nn.Module) -> None:
    """Draws initial weights so that activations keep their size from layer to layer.

    Plain convolutions and fully-connected layers in front of a ReLU have variance 2 / fan-in (He et al. 2015). Layers
    that take a maximum keep their own default, variance 1 / (3 fan-in): the mean square of such a maximum is 3 to 5
    times larger. Biases are zero. The softmax layer has standard deviation 0.01, so that all classes start about equal.
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
        if isinstance(module, EpitomicConv2d | MaxPoolConv2d | MaxoutConv2d | nn.Conv2d | nn.Linear):
            if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module not in pooled):
                fan_in = module.weight[0].numel()
                nn.init.normal_(module.weight, std=math.sqrt(2 / fan_in))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    nn.init.normal_(linear[-1].weight, std=0.01)


def check_image_size(model: str, image_size: int, minimum: int, maximum: int | None = None) -> None:
    """Raises an error that names the sizes that fit, if this one does not."""
    if image_size < minimum or (maximum is not None and image_size > maximum):
        fits = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise UserError(f"image_size of {model} networks must be {fits} pixels, got {image_size}")
