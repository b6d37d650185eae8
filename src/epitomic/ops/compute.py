"""Each layer by each algorithm, on a batch: from the layer's sizes through the reductions to the kernel."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Geometry, PoolGeometry, TileGeometry
from epitomic.ops.choice import has_few_channels
from epitomic.ops.direct import match_direct, max_pool_direct
from epitomic.ops.filters import gather_filters, normalize_filters
from epitomic.ops.inputs import Computed, by_groups
from epitomic.ops.matching import match
from epitomic.ops.one_convolution import match_one_convolution
from epitomic.ops.operands import Grid, is_channels_last
from epitomic.ops.reductions import (
    contrast_gain,
    mini_epitomes,
    pixels_to_channels,
    pooled_stride_to_channels,
    stride_to_channels,
)
from epitomic.ops.reference import epitomic_conv2d_reference, max_pool_conv2d_reference
from epitomic.ops.triton.served import TRITON

# Algorithms that take the filters of each epitome, not the epitome.
BY_FILTERS = {"direct": match_direct, "one_convolution": match_one_convolution}


def epitomic(
    algorithm: str, x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, normalize: bool, eps: float
) -> Computed:
    """Eq. 2 and 3: responses and positions, (N, output channels, oh, ow).

    Args:
        algorithm: Not ``"auto"``.
        x: (N, C, H, W), in the dtype to compute in.
        weight: The epitomes, (K, C, V, V).
        bias: (output channels,) or None.
        geometry: The sizes.
        normalize: Mean + contrast normalisation of the filters.
        eps: lambda of Eq. 3.
    """
    if bias is not None:
        bias = bias.to(x.dtype)
    if algorithm == "reference":
        return epitomic_conv2d_reference(x, weight.to(x.dtype), bias, geometry, normalize=normalize, eps=eps)

    ph, pw = geometry.padding
    if ph or pw:
        x = F.pad(x, (pw, pw, ph, ph))
    if algorithm in BY_FILTERS:
        filters = _normalized(gather_filters(weight.contiguous(), geometry), normalize, eps).to(x.dtype)
        y, positions = BY_FILTERS[algorithm](_plain_channel(x), filters, bias, geometry.stride)
        return y.contiguous(memory_format=torch.channels_last) if is_channels_last(x) else y, positions

    minis = mini_epitomes(weight, geometry)  # (K, C, V', V') with one of K per output channel
    if algorithm in TRITON and normalize:  # half precision rounds a centred epitome less
        minis = minis.to(torch.promote_types(minis.dtype, torch.float32))
        minis = minis - minis.mean((1, 2, 3), keepdim=True)
    else:
        minis = minis.to(x.dtype)
    gain = contrast_gain(minis, geometry, eps) if normalize else None
    minis = minis.to(x.dtype)
    x, minis, kernel, stride = stride_to_channels(x, minis, geometry, centred=normalize)
    if algorithm == "native" and has_few_channels(len(minis), minis.shape[1], kernel, geometry.pool):
        pixels, windows = pixels_to_channels(x, minis, kernel, stride)
        grid = Grid.of_patches(pixels.shape[2:], windows.shape[2:], (1, 1), (1, 1), (0, 0))
        y, positions = match(pixels, windows, bias, gain, grid, algorithm)
        return y if is_channels_last(x) else y.contiguous(), positions
    grid = Grid.of_patches(x.shape[2:], minis.shape[2:], kernel, stride, (0, 0))
    return match(x, minis, bias, gain, grid, algorithm)


def max_pool(
    algorithm: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: PoolGeometry,
    groups: int,
    normalize: bool,
    eps: float,
    positions: bool,
) -> Computed:
    """Eq. 1: responses and positions, (N, K, oh, ow). `direct` finds positions only if asked for.

    Args:
        algorithm: Not ``"auto"``.
        x: (N, C, H, W), in the dtype to compute in.
        weight: The filters, (K, C / groups, W, W).
        bias: (K,) or None.
        geometry: The sizes.
        groups: Groups of channels.
        normalize: Mean + contrast normalisation of the filters.
        eps: lambda of Eq. 3.
        positions: Whether the caller wants the positions.
    """
    if bias is not None:
        bias = bias.to(x.dtype)
    if algorithm == "reference":
        weight = weight.to(x.dtype)
        return max_pool_conv2d_reference(x, weight, bias, geometry, groups, normalize=normalize, eps=eps)
    filters = _normalized(weight, normalize, eps).to(x.dtype)
    if algorithm == "direct":
        return max_pool_direct(x, filters, bias, geometry, groups, positions=positions)

    outputs = geometry.output_size(x.shape[2], x.shape[3])

    def one_group(x: Tensor, filters: Tensor, bias: Tensor | None) -> Computed:
        x, filters, padding = pooled_stride_to_channels(x, filters, geometry)
        kernel = filters.shape[2], filters.shape[3]
        grid = Grid.of_windows(x.shape[2:], outputs, kernel, padding, geometry)
        return match(x, filters, bias, None, grid, algorithm)

    return by_groups(groups, x, filters, bias, one_group)


def plain(
    algorithm: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: TileGeometry,
    groups: int,
) -> Tensor:
    """A convolution of step 1 by the kernel: (N, K, oh, ow).

    Args:
        algorithm: ``"winograd"`` or ``"native"``.
        x: (N, C, H, W), in the dtype to compute in.
        weight: The filters, (K, C / groups, W, W).
        bias: (K,) or None.
        geometry: The sizes.
        groups: Groups of channels.
    """
    grid = Grid.of_tiles(x.shape[2:], geometry.kernel, geometry.tile, geometry.padding)

    def one_group(x: Tensor, weight: Tensor, bias: Tensor | None) -> Computed:
        return match(x, weight, bias, None, grid, algorithm)[0], None

    return by_groups(groups, x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype), one_group)[0]


def _plain_channel(x: Tensor) -> Tensor:
    """Returns the same input, one channel with the strides of a contiguous tensor.

    With other strides of one channel, ``conv2d`` of torch 2.13 gives wrong results on CPU if its stride is 3 and its
    output one pixel wide. A tensor of one channel can be both contiguous and channels_last, so ``contiguous`` alone
    may keep them.
    """
    return x.squeeze(1).contiguous().unsqueeze(1) if x.shape[1] == 1 and x.stride(1) == 1 else x


def _normalized(filters: Tensor, normalize: bool, eps: float) -> Tensor:
    """Eq. 3 where it is asked for. The sums over a filter need more than half precision."""
    if not normalize:
        return filters
    return normalize_filters(filters.to(torch.promote_types(filters.dtype, torch.float32)), eps)
