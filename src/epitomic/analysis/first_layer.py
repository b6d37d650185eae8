"""The weights of a network's first layer: its epitomes, or its filters if it has no epitomes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from epitomic.analysis.receptive_fields import convolutional_layers
from epitomic.geometry import Pair
from epitomic.layers import EpitomicConv2d, MaxoutConv2d, is_normalized
from epitomic.models.whitening import Whitening
from epitomic.support.errors import UserError

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class FirstLayer:
    """The weights of a first layer.

    Attributes:
        kind: What the weights are: ``"epitomes"``, ``"filters"``, ``"maxout filters"`` or
            ``"fixed whitening filters"``.
        weight: Epitomes or filters, (K, pieces, C, V, V). Only a maxout layer has more than one piece.
        filter_size: Height and width W of a filter.
        centred: True if the layer ignores the mean of its filters (Eq. 3).
    """

    kind: str
    weight: Weights
    filter_size: int
    centred: bool

    @property
    def text(self) -> str:
        """Says how many epitomes or filters there are, and their size."""
        count, pieces, _, height, width = self.weight.shape
        size = f"{height} × {width}"
        if self.kind == "epitomes":
            some = "1 epitome" if count == 1 else f"{count} epitomes"
            return f"{some} of {size}, filters of {self.filter_size} × {self.filter_size}"
        return f"{count} × {pieces} {self.kind} of {size}" if pieces > 1 else f"{count} {self.kind} of {size}"


@dataclass(frozen=True)
class Epitome:
    """One epitome, and where its filters lie.

    Attributes:
        weight: The epitome, (C, height, width).
        kernel: Height and width W of its filters.
        pool: Height and width D of the window of positions.
        corners: Top row and left column of the filter at each position, row by row.
        centred: True if the layer ignores the mean of its filters (Eq. 3).
    """

    weight: Weights
    kernel: Pair
    pool: Pair
    corners: list[Pair]
    centred: bool


def read_first_layer(model: nn.Module) -> FirstLayer:
    """Reads the epitomes of the first layer, or its filters if it has no epitomes.

    Raises:
        UserError: If there is no convolutional layer.
    """
    layers = convolutional_layers(model)
    if not layers:
        raise UserError("the network has no convolutional layer: there are no filters to show")
    layer = layers[0][1]
    pieces = layer.pieces if isinstance(layer, MaxoutConv2d) else 1
    weight = _numbers(layer)
    weight = weight.reshape(-1, pieces, *weight.shape[1:])
    if isinstance(layer, EpitomicConv2d):
        return FirstLayer("epitomes", weight, layer.geometry.kernel[0], is_normalized(layer))
    kind = "maxout filters" if pieces > 1 else "fixed whitening filters" if isinstance(layer, Whitening) else "filters"
    return FirstLayer(kind, weight, weight.shape[-1], is_normalized(layer))


def one_epitome(model: nn.Module, number: int) -> Epitome:
    """Reads one epitome of the first layer; in a topographic layer, the part that belongs to one output channel.

    Args:
        model: A network whose first layer is epitomic.
        number: Number of the output channel, from 0.

    Raises:
        UserError: If the first layer is not epitomic or has no such channel.
    """
    layers = convolutional_layers(model)
    layer = layers[0][1] if layers else None
    if not isinstance(layer, EpitomicConv2d):
        raise UserError(
            "--epitome: the first layer of this network has no epitomes; without this option its filters are shown"
        )
    if not 0 <= number < layer.out_channels:
        raise UserError(f"--epitome must be from 0 to {layer.out_channels - 1}, got {number}")
    g = layer.geometry
    outputs = math.prod(g.outputs)
    row, column = divmod(number % outputs, g.outputs[1])
    top, left = row * g.pool[0] * g.epitome_stride[0], column * g.pool[1] * g.epitome_stride[1]
    weight = _numbers(layer)[number // outputs, :, top : top + g.mini[0], left : left + g.mini[1]]
    corners = [(r * g.epitome_stride[0], c * g.epitome_stride[1]) for r in range(g.pool[0]) for c in range(g.pool[1])]
    return Epitome(weight, g.kernel, g.pool, corners, layer.normalize)


def _numbers(layer: nn.Module) -> Weights:
    weight: Weights = layer.weight.detach().double().cpu().numpy()  # type: ignore[operator]
    return weight
