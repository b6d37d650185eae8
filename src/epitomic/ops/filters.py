"""The filters that an epitome holds, and their mean + contrast normalisation (Eq. 3)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Geometry, Pair


def mini_epitomes(epitomes: Tensor, geometry: Geometry) -> Tensor:
    """A topographic epitome is m x m overlapping mini-epitomes, starting D*e apart.

    (K, C, V, V) -> (K*m*m, C, V', V') with V' = W + (D - 1) e. Autograd of ``unfold`` folds the gradient back.
    """
    if geometry.epitome == geometry.mini:
        return epitomes
    (vh, vw), (dh, dw), (eh, ew) = geometry.mini, geometry.pool, geometry.epitome_stride
    minis = epitomes.unfold(2, vh, dh * eh).unfold(3, vw, dw * ew)  # (K, C, m, m, V', V')
    return minis.permute(0, 2, 3, 1, 4, 5).flatten(0, 2)


def gather_filters(minis: Tensor, kernel: Pair, step: Pair) -> Tensor:
    """The D*D filters w_{k,p} of each mini-epitome: (K, C, V', V') -> (K, D*D, C, W, W), p row-major."""
    filters = minis.unfold(2, kernel[0], step[0]).unfold(3, kernel[1], step[1])  # (K, C, D, D, W, W)
    return filters.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)


def patch_means(x: Tensor, kernel: Pair, stride: Pair) -> Tensor:
    """Mean of each patch over its W*W*C values: (N, H, W, C) -> (N, oh, ow)."""
    return F.avg_pool2d(x.mean(3).unsqueeze(1), kernel, stride).squeeze(1).contiguous()


def normalize_filters(filters: Tensor, eps: float) -> Tensor:
    """Eq. 3: each filter, the last three dimensions (C, W, W), less its mean, over its contrast."""
    centred = filters - filters.mean((-3, -2, -1), keepdim=True)
    contrast = (centred.square().sum((-3, -2, -1), keepdim=True) + eps).sqrt()
    return centred / contrast
