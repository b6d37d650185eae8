"""The reductions that leave one kernel to write (`matching`).

They turn every epitomic layer of the paper into mini-epitome matching with stride 1 inside the epitome:

1. `mini_epitomes`: a topographic epitome is m x m overlapping mini-epitomes;
2. `stride_to_channels`: space-to-depth turns an epitome stride e into e * e times the channels;
3. `contrast_gain`: mean + contrast normalisation (Eq. 3) is centred patches and a gain per filter.

A fourth one saves the native kernel work where there are few channels: `pixels_to_channels`. Max-pooled convolution
(Eq. 1) needs the second one alone, `pooled_stride_to_channels`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Geometry, Pair, PoolGeometry, count_windows


def mini_epitomes(epitomes: Tensor, geometry: Geometry) -> Tensor:
    """Cuts each topographic epitome into its m x m mini-epitomes, which start D*e apart.

    (K, C, V, V) -> (K*m*m, C, V', V') with V' = W + (D - 1) e. Autograd of ``unfold`` folds the gradient back.
    """
    if geometry.epitome == geometry.mini:
        return epitomes
    (vh, vw), (dh, dw), (eh, ew) = geometry.mini, geometry.pool, geometry.epitome_stride
    minis = epitomes.unfold(2, vh, dh * eh).unfold(3, vw, dw * ew)  # (K, C, m, m, V', V')
    return minis.permute(0, 2, 3, 1, 4, 5).flatten(0, 2)


def stride_to_channels(
    x: Tensor, minis: Tensor, geometry: Geometry, *, centred: bool
) -> tuple[Tensor, Tensor, Pair, Pair]:
    """Turns an epitome stride e into 1: space-to-depth by e of every patch and mini-epitome makes e*e*C channels of C.

    Returns the new input, mini-epitomes, filter size and stride. ``centred`` says that the kernel centres the patches.
    """
    (wh, ww), (sh, sw), (eh, ew) = geometry.kernel, geometry.stride, geometry.epitome_stride
    if (eh, ew) == (1, 1):
        return x, minis, geometry.kernel, geometry.stride
    kernel = -(-wh // eh), -(-ww // ew)
    rest_h, rest_w = kernel[0] * eh - wh, kernel[1] * ew - ww  # zeros at the end where e does not divide W
    minis = space_to_depth(F.pad(minis, (0, rest_w, 0, rest_h)), geometry.epitome_stride)
    if wh % eh == ww % ew == sh % eh == sw % ew == 0:  # then patches of the image are patches of its space-to-depth
        oh, ow = count_windows(x.shape[2:], geometry.kernel, geometry.stride)
        x = x[:, :, : (oh - 1) * sh + wh, : (ow - 1) * sw + ww]
        return space_to_depth(x, geometry.epitome_stride), minis, kernel, (sh // eh, sw // ew)
    patches = x.unfold(2, wh, sh).unfold(3, ww, sw)  # (N, C, oh, ow, W, W)
    if centred:  # before zeros join the patch: the kernel's own centring then changes nothing
        patches = patches - patches.mean((1, 4, 5), keepdim=True)
    patches = F.pad(patches, (0, rest_w, 0, rest_h))  # (N, C, oh, ow, W', W')
    tiled = patches.transpose(3, 4).flatten(4, 5).flatten(2, 3)  # (N, C, oh*W', ow*W'): patches side by side
    return space_to_depth(tiled, geometry.epitome_stride), minis, kernel, kernel


def pooled_stride_to_channels(x: Tensor, filters: Tensor, geometry: PoolGeometry) -> tuple[Tensor, Tensor, Pair]:
    """Turns the stride s of a convolution before its pooling into 1, as `stride_to_channels` does for epitomes.

    Returns the new input, filters and padding.
    """
    (wh, ww), (sh, sw), (ph, pw) = geometry.kernel, geometry.stride, geometry.padding
    if (sh, sw) == (1, 1):
        return x, filters, geometry.padding
    kernel = -(-wh // sh), -(-ww // sw)
    filters = F.pad(filters, (0, kernel[1] * sw - ww, 0, kernel[0] * sh - wh))  # zeros at the end
    rows, columns = geometry.responses(x.shape[2], x.shape[3])
    height, width = (rows - 1 + kernel[0]) * sh, (columns - 1 + kernel[1]) * sw  # what the responses read
    x = F.pad(x, (pw, width - pw - x.shape[3], ph, height - ph - x.shape[2]))  # or crops it
    return space_to_depth(x, geometry.stride), space_to_depth(filters, geometry.stride), (0, 0)


def contrast_gain(minis: Tensor, geometry: Geometry, eps: float) -> Tensor:
    """Returns 1 / contrast of every filter, (K, D*D): the denominator of Eq. 3, from box sums over the mini-epitomes.

    The numerator needs no change of the filters: x^T (w - mean w) = (x - mean x)^T w, and the kernel centres patches.
    """
    count = minis.shape[1] * geometry.kernel[0] * geometry.kernel[1]
    sums = torch.stack(_ChannelSums.apply(minis), 1)  # (K, 2, V', V')
    sums = F.avg_pool2d(sums, geometry.kernel, geometry.epitome_stride, divisor_override=1)
    first, second = sums.flatten(2).unbind(1)  # (K, D*D)
    energy = second - first.square() / count
    return (energy.clamp(min=0) + eps).rsqrt()


class _ChannelSums(torch.autograd.Function):
    """Sums v and v^2 over the channels, where v is each epitome less its mean: (K, C, V', V') -> (K, V', V').

    A centred filter does not depend on that mean, so the mean counts as a constant. Subtracting it keeps the sums small
    and so accurate. The gradient is written by hand because autograd would keep several tensors as large as v.
    """

    @staticmethod
    def forward(ctx: Any, minis: Tensor) -> tuple[Tensor, Tensor]:
        first = minis.sum(1)
        mean = first.mean((1, 2), keepdim=True) / minis.shape[1]  # (K, 1, 1)
        ctx.save_for_backward(minis, mean)
        return first - minis.shape[1] * mean, (minis - mean[:, None]).square_().sum(1)

    @staticmethod
    def backward(ctx: Any, d_first: Tensor, d_second: Tensor) -> Tensor:
        minis, mean = ctx.saved_tensors
        grad = (minis - mean[:, None]).mul_(2 * d_second[:, None])
        return grad.add_(d_first[:, None])


def pixels_to_channels(x: Tensor, minis: Tensor, kernel: Pair, stride: Pair) -> tuple[Tensor, Tensor]:
    """Turns a filter size W into 1: every patch becomes one pixel of C*W*W channels.

    Returns the new input, in channels_last, and the new mini-epitomes.
    """
    (wh, ww), (sh, sw), (dh, dw) = kernel, stride, count_windows(minis.shape[2:], kernel, (1, 1))
    patches = x.unfold(2, wh, sh).unfold(3, ww, sw)  # (N, C, oh, ow, W, W)
    pixels = patches.permute(0, 2, 3, 4, 5, 1).flatten(3)  # (N, oh, ow, W*W*C), the format of the kernel
    windows = minis.unfold(2, dh, 1).unfold(3, dw, 1)  # (K, C, W, W, D, D)
    return pixels.permute(0, 3, 1, 2), windows.permute(0, 2, 3, 1, 4, 5).flatten(1, 3)


def space_to_depth(x: Tensor, block: Pair) -> Tensor:
    """Moves blocks of e x e pixels into channels: (N, C, H, W) -> (N, e*e*C, H/e, W/e). Keeps channels_last.

    ``pixel_unshuffle`` takes no pairs and puts the channels outermost. Here they are innermost, so that runs of e*C
    values stay whole in channels_last.
    """
    (eh, ew), (h, w) = block, x.shape[2:]
    blocks = x.unflatten(3, (w // ew, ew)).unflatten(2, (h // eh, eh))  # (N, C, H/e, e, W/e, e)
    if x.stride(1) == 1:
        return blocks.permute(0, 2, 4, 3, 5, 1).flatten(3, 5).permute(0, 3, 1, 2)
    return blocks.permute(0, 3, 5, 1, 2, 4).flatten(1, 3)
