"""The filters in an epitome, and the normalisation of their mean and contrast (Eq. 3)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Geometry, Pair
from epitomic.ops.reductions import mini_epitomes


def gather_filters(epitomes: Tensor, geometry: Geometry) -> Tensor:
    """Returns the D*D filters w_{k,p} of each output channel: (K, C, V, V) -> (K*m*m, D*D, C, W, W), p row-major."""
    (wh, ww), (eh, ew) = geometry.kernel, geometry.epitome_stride
    filters = mini_epitomes(epitomes, geometry).unfold(2, wh, eh).unfold(3, ww, ew)  # (K*m*m, C, D, D, W, W)
    return filters.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)


def patch_means(x: Tensor, kernel: Pair, stride: Pair) -> Tensor:
    """Returns the mean of each patch over its W*W*C values, in float32 at least: (N, H, W, C) -> (N, oh, ow)."""
    means = x.mean(3, dtype=torch.promote_types(x.dtype, torch.float32))
    return F.avg_pool2d(means.unsqueeze(1), kernel, stride).squeeze(1).contiguous()


def filter_means(minis: Tensor, kernel: Pair) -> Tensor:
    """Returns the mean of each filter of mini-epitomes with stride 1 inside: (K, C, V', V') -> (K, D*D)."""
    return F.avg_pool2d(minis.mean(1, keepdim=True), kernel, stride=1).flatten(1)


def check_eps(eps: float) -> None:
    """Raises an error if ``eps``, the lambda of Eq. 3, is negative or NaN."""
    if not eps >= 0:
        raise ValueError(f"eps, the lambda of the contrast, must not be negative, got {eps}")


def normalize_filters(filters: Tensor, eps: float) -> Tensor:
    """Subtracts each filter's mean and divides by its contrast (Eq. 3). The last three dimensions are (C, W, W)."""
    centred = filters - filters.mean((-3, -2, -1), keepdim=True)
    contrast = (centred.square().sum((-3, -2, -1), keepdim=True) + eps).sqrt()
    return centred / contrast
