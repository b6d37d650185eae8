"""`fold_batch_norm`: a batch normalisation after a layer becomes part of the layer's own weights and biases.

In evaluation, a batch normalisation is y -> s y + t with one scale s and one shift t per channel. A maximum lets a
scale through only if it is not negative: s max(a, b) = max(s a, s b) holds for s >= 0, and for s < 0 the right side
would have to be a minimum.
"""

from __future__ import annotations

import copy
import math
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from epitomic.layers import EpitomicConv2d, MaxoutConv2d, MaxPoolConv2d, NormConv2d

Foldable = TypeVar("Foldable", EpitomicConv2d, MaxPoolConv2d, MaxoutConv2d, nn.Conv2d)


@torch.no_grad()
def fold_batch_norm(layer: Foldable, bn: nn.BatchNorm2d) -> Foldable:
    """Returns a copy of the layer that computes what the layer and the batch normalisation after it compute.

    It is exact, to rounding. Torch's ``fuse_conv_bn_eval`` would be wrong for negative scales.

    Args:
        layer: An `EpitomicConv2d`, `MaxPoolConv2d`, `MaxoutConv2d`, `WinogradConv2d` or ``nn.Conv2d``.
        bn: The batch normalisation after it, in evaluation mode.

    Raises:
        ValueError: If no such layer exists. That is so for negative scales of a layer that takes a maximum, for
            normalised filters (Eq. 3), and for topographic layers.

    Example:
        >>> layer, bn = EpitomicConv2d(3, 8, 3), nn.BatchNorm2d(8).eval()
        >>> x = torch.randn(1, 3, 10, 10)
        >>> torch.allclose(fold_batch_norm(layer, bn)(x), bn(layer(x)), atol=1e-5)
        True
    """
    _check_types(layer, bn)
    scale, shift = _affine(bn)
    reason = why_not_folded(layer, scale)
    if reason:
        raise ValueError(f"cannot fold the batch normalisation into {type(layer).__name__}: {reason}")
    pieces = layer.pieces if isinstance(layer, MaxoutConv2d) else 1
    scale, shift = scale.repeat_interleave(pieces), shift.repeat_interleave(pieces)
    folded = copy.deepcopy(layer)
    weight = layer.weight.double() * scale.view(-1, 1, 1, 1)
    bias = shift if layer.bias is None else layer.bias.double() * scale + shift
    learned = layer.weight.requires_grad
    folded.weight = nn.Parameter(weight.to(layer.weight.dtype), requires_grad=learned)
    folded.bias = nn.Parameter(bias.to(layer.weight.dtype), requires_grad=learned)
    return folded


def why_not_folded(layer: nn.Module, scale: Tensor) -> str | None:
    """Returns why a scale per channel does not fold into the layer, or None if it does."""
    if getattr(layer, "normalize", False) or isinstance(layer, NormConv2d):
        return "its filters are normalised (Eq. 3), so a scale of the weights changes nothing"
    if isinstance(layer, EpitomicConv2d) and math.prod(layer.geometry.outputs) > 1:
        return f"its {math.prod(layer.geometry.outputs)} channels per epitome share weights, but not a scale"
    if parametrize.is_parametrized(layer):
        return "its weights are parametrised: call nn.utils.parametrize.remove_parametrizations first"
    negative = scale < 0
    if isinstance(layer, EpitomicConv2d | MaxPoolConv2d | MaxoutConv2d) and negative.any():
        return (
            f"{int(negative.sum())} of {len(scale)} scales are negative, the first in channel "
            f"{int(negative.nonzero()[0])}, and a negative scale turns the maximum into a minimum"
        )
    return None


def _check_types(layer: nn.Module, bn: nn.Module) -> None:
    if not isinstance(layer, EpitomicConv2d | MaxPoolConv2d | MaxoutConv2d | nn.Conv2d):
        raise TypeError(f"layer must be one of this package's layers or nn.Conv2d, got {type(layer).__name__}")
    if not isinstance(bn, nn.BatchNorm2d):
        raise TypeError(f"bn must be nn.BatchNorm2d, got {type(bn).__name__}")
    if bn.training or bn.running_mean is None:
        why = "is in training mode: call bn.eval()" if bn.training else "has no running statistics"
        raise ValueError(f"bn normalises by the statistics of each batch, as it {why}")
    if bn.num_features != layer.out_channels:
        raise ValueError(f"bn must have the layer's {layer.out_channels} channels, got {bn.num_features}")


def _affine(bn: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Returns the scales and shifts in float64, (channels,)."""
    mean, variance = bn.running_mean, bn.running_var
    assert mean is not None
    assert variance is not None
    scale = (variance.double() + bn.eps).rsqrt()
    if bn.weight is not None:
        scale = scale * bn.weight.double()
    shift = -mean.double() * scale
    return scale, shift if bn.bias is None else shift + bn.bias.double()
