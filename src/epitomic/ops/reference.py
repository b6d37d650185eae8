"""Eq. 1 to 3 as the paper writes them, one filter at a time. Every test compares with it.

It is slow and takes much memory, and shares nothing with the fast algorithms but the geometry.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Geometry, PoolGeometry


def epitomic_conv2d_reference(
    x: Tensor, epitomes: Tensor, bias: Tensor | None, geometry: Geometry, *, normalize: bool, eps: float
) -> tuple[Tensor, Tensor]:
    """Computes Eq. 2, or Eq. 3 with ``normalize``: the best response of each patch to each mini-epitome.

    Args:
        x: Input, (N, C, H, W).
        epitomes: The epitomes, (K, C, V, V).
        bias: Added after the maximum, (output channels,), or None.
        geometry: The sizes of the layer.
        normalize: Whether to normalise the mean and contrast of each filter (Eq. 3).
        eps: lambda of Eq. 3.

    Returns:
        The responses and the winning positions p, each (N, K * outputs per epitome, oh, ow).
    """
    (wh, ww), (dh, dw), (eh, ew) = geometry.kernel, geometry.pool, geometry.epitome_stride
    mh, mw = geometry.outputs
    oh, ow = geometry.output_size(*x.shape[-2:])
    patches = F.unfold(x, geometry.kernel, padding=geometry.padding, stride=geometry.stride)  # (N, C*W*W, L)

    values, positions = [], []
    for epitome in epitomes:  # (C, V, V)
        for a in range(mh):  # a topographic epitome has outputs D positions apart, a mini-epitome has one
            for b in range(mw):
                responses = []
                for r in range(a * dh, (a + 1) * dh):  # p, row-major in the D x D window
                    for c in range(b * dw, (b + 1) * dw):
                        w = epitome[:, r * eh : r * eh + wh, c * ew : c * ew + ww].flatten()  # w_{k,p}
                        if normalize:  # Eq. 3
                            w = w - w.mean()
                            w = w / (w @ w + eps).sqrt()
                        responses.append(w @ patches)  # x_i^T w_{k,p}, (N, L)
                stacked = torch.stack(responses)  # (D*D, N, L), over which Eq. 2 takes the maximum
                p = stacked.detach().argmax(0, keepdim=True)  # the first of equal maxima
                values.append(stacked.gather(0, p)[0])
                positions.append(p[0])
    y = torch.stack(values, 1).unflatten(2, (oh, ow))  # (N, K, oh, ow)
    if bias is not None:
        y = y + bias[:, None, None]
    return y, torch.stack(positions, 1).unflatten(2, (oh, ow))


def max_pool_conv2d_reference(
    x: Tensor, weight: Tensor, bias: Tensor | None, geometry: PoolGeometry, groups: int, *, normalize: bool, eps: float
) -> tuple[Tensor, Tensor]:
    """Computes Eq. 1: for each filter and pooling window, the best response and where in the window it was.

    Args:
        x: Input, (N, C, H, W).
        weight: The filters, (K, C / groups, W, W).
        bias: One value per filter, (K,), or None.
        geometry: The sizes of the layer.
        groups: Number of groups of channels, as in ``conv2d``.
        normalize: Whether to normalise the mean and contrast of each filter (Eq. 3).
        eps: lambda of Eq. 3.

    Returns:
        Responses and positions, each (N, K, output height, output width).
    """
    (dh, dw), (sh, sw), (above, left) = geometry.pool, geometry.pool_stride, geometry.pool_padding
    rows, columns = geometry.responses(*x.shape[-2:])
    oh, ow = geometry.output_size(*x.shape[-2:])
    after = max(0, (oh - 1) * sh + dh - above - rows), max(0, (ow - 1) * sw + dw - left - columns)
    per_group = len(weight) // groups

    values, positions = [], []
    for k, filter in enumerate(weight):
        w = filter.flatten()
        if normalize:
            w = w - w.mean()
            w = w / (w @ w + eps).sqrt()
        channels = x.chunk(groups, 1)[k // per_group]  # those that this filter sees
        patches = F.unfold(channels, geometry.kernel, padding=geometry.padding, stride=geometry.stride)
        responses = (w @ patches).unflatten(1, (rows, columns))  # x_{i,p}^T w_k, (N, rows, columns)
        responses = F.pad(responses, (left, after[1], above, after[0]), value=-math.inf)  # never the best
        stacked = torch.stack(  # (D*D, N, oh, ow), p row-major in the window
            [
                responses[:, a : a + (oh - 1) * sh + 1 : sh, b : b + (ow - 1) * sw + 1 : sw]
                for a in range(dh)
                for b in range(dw)
            ]
        )
        p = stacked.detach().argmax(0, keepdim=True)  # the first of equal maxima
        values.append(stacked.gather(0, p)[0])
        positions.append(p[0])
    y = torch.stack(values, 1)  # (N, K, oh, ow)
    if bias is not None:
        y = y + bias[:, None, None]
    return y, torch.stack(positions, 1)
