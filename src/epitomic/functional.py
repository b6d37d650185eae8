"""`epitomic_conv2d`: the one public function, and the reductions that leave one kernel to write.

Three reductions turn every epitomic layer of the paper into mini-epitome matching with stride 1 inside the epitome:

1. topographic -> mini: a large epitome is m x m overlapping mini-epitomes (`ops.filters.mini_epitomes`);
2. epitome stride -> channels: space-to-depth of patches and epitomes (`_stride_to_channels`);
3. mean + contrast normalisation -> centred patches and a gain per filter (`_contrast_gain`).

A fourth leaves the native kernel less to do where there are few channels: `_pixels_to_channels`.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from epitomic.geometry import Geometry, Pair, Size
from epitomic.ops.direct import match_direct
from epitomic.ops.filters import gather_filters, mini_epitomes, normalize_filters
from epitomic.ops.library import why_not_native
from epitomic.ops.matching import is_channels_last, match
from epitomic.ops.reference import epitomic_conv2d_reference
from epitomic.ops.transforms import MAX_POINTS

ALGORITHMS = ("auto", "reference", "direct", "winograd", "native")
WORTHWHILE = 64  # measured by benchmarks/auto.py
TRANSFORMS = 8  # what the native kernel's transforms of a point cost, in channels of multiplications


@overload
def epitomic_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_size: Size,
    pool_size: Size | None = None,
    stride: Size | None = None,
    padding: Size = 0,
    epitome_stride: Size = 1,
    normalize: bool = False,
    eps: float = 0.01,
    algorithm: str = "auto",
    return_positions: Literal[False] = False,
) -> Tensor: ...


@overload
def epitomic_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_size: Size,
    pool_size: Size | None = None,
    stride: Size | None = None,
    padding: Size = 0,
    epitome_stride: Size = 1,
    normalize: bool = False,
    eps: float = 0.01,
    algorithm: str = "auto",
    return_positions: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def epitomic_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_size: Size,
    pool_size: Size | None = None,
    stride: Size | None = None,
    padding: Size = 0,
    epitome_stride: Size = 1,
    normalize: bool = False,
    eps: float = 0.01,
    algorithm: str = "auto",
    return_positions: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Epitomic convolution (Papandreou 2014, Eq. 2 and 3): each input patch keeps its best match in each epitome.

    One call in place of ``conv2d`` + ``max_pool2d``. All sizes are ints or (height, width) pairs.

    Args:
        input: (N, C, H, W), or (C, H, W) for one image.
        weight: The epitomes, (K, C, V, V).
        bias: One value per output channel, added after the maximum.
        kernel_size: W, the size of the filters that the epitomes hold.
        pool_size: D, the D x D neighbouring filters under one maximum. None: one maximum over the whole epitome.
        stride: Step of the patches in the input. None: ``pool_size``, as in ``max_pool2d``.
        padding: Zeros added on each side of the input.
        epitome_stride: Step from one filter of the epitome to the next.
        normalize: Mean + contrast normalisation of each filter (Eq. 3).
        eps: lambda of Eq. 3.
        algorithm: ``"auto"``, or one of ``"reference"``, ``"direct"``, ``"winograd"``, ``"native"``. All give the same
            result to rounding; docs/performance.md says when ``"auto"`` takes which.
        return_positions: Also return where in the epitome each maximum was.

    Returns:
        The responses, (N, K * m * m, oh, ow) with m x m outputs per epitome (1 for a mini-epitome). With
        ``return_positions``, also the winning p of Eq. 2, an int64 tensor of the same shape, row-major in the D x D
        window. Exact ties go to the lowest p, and the gradient to that one winner.

    Example:
        >>> x, epitomes = torch.randn(8, 3, 32, 32), torch.randn(16, 3, 6, 6)
        >>> epitomic_conv2d(x, epitomes, kernel_size=5, pool_size=2).shape  # 5 x 5 filters, 2 x 2 of them per epitome
        torch.Size([8, 16, 14, 14])
    """
    _check_tensors(input, weight, bias)
    geometry = Geometry.create(
        kernel_size=kernel_size,
        pool_size=pool_size,
        stride=stride,
        padding=padding,
        epitome_size=[int(v) for v in weight.shape[2:]],
        epitome_stride=epitome_stride,
    )
    _check_fit(input, weight, bias, geometry)
    if normalize and not eps >= 0:
        raise ValueError(f"eps, the lambda of the contrast, must not be negative, got {eps}")

    dtype = _compute_dtype(input)
    chosen = choose_algorithm(algorithm, geometry, input, weight, dtype)
    batch = input if input.dim() == 4 else input.unsqueeze(0)
    with torch.autocast(input.device.type, enabled=False) if _autocast_enabled(input) else contextlib.nullcontext():
        y, positions = _run(chosen, batch.to(dtype), weight, bias, geometry, normalize, eps)
    if input.dim() == 3:
        y, positions = y.squeeze(0), positions.squeeze(0)
    if not return_positions:
        return y
    positions = positions.long()
    return y, positions.contiguous() if y.is_contiguous() else positions


def _run(
    algorithm: str, x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, normalize: bool, eps: float
) -> tuple[Tensor, Tensor]:
    if bias is not None:
        bias = bias.to(x.dtype)
    if algorithm == "reference":
        return epitomic_conv2d_reference(x, weight.to(x.dtype), bias, geometry, normalize=normalize, eps=eps)

    ph, pw = geometry.padding
    if ph or pw:
        x = F.pad(x, (pw, pw, ph, ph))
    minis = mini_epitomes(weight, geometry)  # (K, C, V', V'), topographic outputs counted in K
    if algorithm == "direct":
        filters = gather_filters(minis, geometry.kernel, geometry.epitome_stride)
        if normalize:  # the sums over a filter need more than half precision
            filters = normalize_filters(filters.to(torch.promote_types(filters.dtype, torch.float32)), eps)
        return match_direct(x, filters.to(x.dtype), bias, geometry.stride)

    gain = _contrast_gain(minis, geometry, eps) if normalize else None
    x, minis, kernel, stride = _stride_to_channels(x, minis, geometry, centred=normalize)
    if algorithm != "native" or not has_few_channels(len(minis), minis.shape[1], kernel, geometry.pool):
        return match(x, minis, bias, gain, kernel, stride, algorithm)
    pixels, filters = _pixels_to_channels(x, minis, kernel, stride)
    y, positions = match(pixels, filters, bias, gain, (1, 1), (1, 1), algorithm)
    return y if is_channels_last(x) else y.contiguous(), positions


def choose_algorithm(
    algorithm: str, geometry: Geometry, input: Tensor, weight: Tensor, dtype: torch.dtype | None = None
) -> str:
    """The algorithm that ``algorithm`` means for these tensors; an error with the reason if it cannot serve them.

    ``"auto"`` is ``"native"`` (float32, where it is built) or else ``"winograd"`` where they were measured to win
    (docs/performance.md), else ``"direct"``. They win

    - in float32 and float64, on CPU (elsewhere nothing was measured), for at most `MAX_POINTS` points per axis;
    - when not traced, exported, under ``torch.func`` or in forward-mode differentiation: `direct` is made of operators
      that everybody knows;
    - native, wherever there is a maximum to take, D > 1: a plain convolution saves no multiplications;
    - winograd, where it saves enough: D C e^2 (s - 1) >= `WORTHWHILE`, with s the factor of multiplications saved.
    """
    dtype = dtype or input.dtype
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    if algorithm in ("reference", "direct"):
        return algorithm
    reason = None
    if max(geometry.points) > MAX_POINTS:
        reason = f"it serves at most {MAX_POINTS} points W/e + D - 1 per axis, and here they are {geometry.points}"
    elif dtype not in (torch.float32, torch.float64):
        reason = f"it needs float32 or float64, and the input is {dtype}"
    elif forward_ad._current_level >= 0:  # the operator would drop the tangents without a word
        reason = "it has no forward-mode derivatives"
    not_native = why_not_native(dtype, input.device)
    if algorithm == "native":
        reason = reason or not_native
    if algorithm != "auto":
        if reason:
            raise ValueError(f"algorithm={algorithm!r} cannot serve this call: {reason}; use 'direct' or 'auto'")
        return algorithm
    traced = torch.compiler.is_exporting() or torch._C._get_tracing_state() is not None
    transformed = torch._C._are_functorch_transforms_active()
    if reason or traced or transformed or input.device.type != "cpu":
        return "direct"
    if not not_native:
        return "native" if max(geometry.pool) > 1 else "direct"
    return "winograd" if saves_enough(geometry, weight.shape[1]) else "direct"


def saves_enough(geometry: Geometry, channels: int) -> bool:
    """Whether the saved multiplications outweigh the transforms, whose share falls with the channels."""
    positions = math.prod(geometry.pool)
    blocks = math.prod(geometry.epitome_stride)
    saved = positions * math.prod(geometry.kernel) / (math.prod(geometry.points) * blocks)
    return math.sqrt(positions) * channels * blocks * (saved - 1) >= WORTHWHILE


def _compute_dtype(input: Tensor) -> torch.dtype:
    """The input's dtype, or autocast's where that is on: as ``conv2d``, we are on its list of lower-precision calls."""
    if _autocast_enabled(input) and input.dtype != torch.float64:
        return torch.get_autocast_dtype(input.device.type)
    return input.dtype


def _autocast_enabled(input: Tensor) -> bool:
    device = input.device.type  # some, such as meta, have no autocast
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _contrast_gain(minis: Tensor, geometry: Geometry, eps: float) -> Tensor:
    """1 / contrast of every filter, (K, D*D): Eq. 3 as box sums over the mini-epitomes.

    The filter's mean needs no such term: with centred patches, x^T (w - mean w) = (x - mean x)^T w.
    """
    count = minis.shape[1] * geometry.kernel[0] * geometry.kernel[1]
    sums = torch.stack(_ChannelSums.apply(minis), 1)  # (K, 2, V', V')
    sums = F.avg_pool2d(sums, geometry.kernel, geometry.epitome_stride, divisor_override=1)
    first, second = sums.flatten(2).unbind(1)  # (K, D*D)
    energy = second - first.square() / count
    return (energy.clamp(min=0) + eps).rsqrt()


class _ChannelSums(torch.autograd.Function):
    """Sums over the channels of v and of v^2, with v the epitomes less the mean of each: (K, C, V', V') -> (K, V', V').

    That mean changes no centred filter, so it counts as a constant, and what is left cancels less. Here by hand,
    because v is as large as the epitomes: autograd would keep and pass through several such.
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


def _stride_to_channels(
    x: Tensor, minis: Tensor, geometry: Geometry, *, centred: bool
) -> tuple[Tensor, Tensor, Pair, Pair]:
    """Epitome stride e -> 1: space-to-depth by e of every patch and mini-epitome, C -> e*e*C.

    Returns the new input, mini-epitomes, kernel size and stride. ``centred``: the kernel will centre the patches.
    """
    (wh, ww), (sh, sw), (eh, ew) = geometry.kernel, geometry.stride, geometry.epitome_stride
    if (eh, ew) == (1, 1):
        return x, minis, geometry.kernel, geometry.stride
    kernel = -(-wh // eh), -(-ww // ew)
    rest_h, rest_w = kernel[0] * eh - wh, kernel[1] * ew - ww  # zeros at the end where e does not divide W
    minis = _space_to_depth(F.pad(minis, (0, rest_w, 0, rest_h)), geometry.epitome_stride)
    if wh % eh == ww % ew == sh % eh == sw % ew == 0:  # then patches of the image are patches of its space-to-depth
        oh, ow = (x.shape[2] - wh) // sh + 1, (x.shape[3] - ww) // sw + 1
        x = x[:, :, : (oh - 1) * sh + wh, : (ow - 1) * sw + ww]
        return _space_to_depth(x, geometry.epitome_stride), minis, kernel, (sh // eh, sw // ew)
    patches = x.unfold(2, wh, sh).unfold(3, ww, sw)  # (N, C, oh, ow, W, W)
    if centred:  # before zeros join the patch: the kernel's own centring then changes nothing
        patches = patches - patches.mean((1, 4, 5), keepdim=True)
    patches = F.pad(patches, (0, rest_w, 0, rest_h))  # (N, C, oh, ow, W', W')
    tiled = patches.transpose(3, 4).flatten(4, 5).flatten(2, 3)  # (N, C, oh*W', ow*W'): patches side by side
    return _space_to_depth(tiled, geometry.epitome_stride), minis, kernel, kernel


def has_few_channels(epitomes: int, channels: int, kernel: Pair, pool: Pair) -> bool:
    """Whether D^2 W^2 multiplications by channel without transforms cost less than V^2 with them.

    Nor may the gathered patches outgrow the output by far.
    """
    (wh, ww), (dh, dw) = kernel, pool
    direct = dh * dw * (wh * ww * channels + TRANSFORMS)
    winograd = (wh + dh - 1) * (ww + dw - 1) * (channels + TRANSFORMS)
    return direct < winograd and wh * ww * channels <= 2 * epitomes


def _pixels_to_channels(x: Tensor, minis: Tensor, kernel: Pair, stride: Pair) -> tuple[Tensor, Tensor]:
    """Filter size W -> 1: every patch becomes one pixel of C*W*W channels. Returns the new input and mini-epitomes."""
    (wh, ww), (sh, sw), (vh, vw) = kernel, stride, minis.shape[2:]
    patches = x.unfold(2, wh, sh).unfold(3, ww, sw)  # (N, C, oh, ow, W, W)
    pixels = patches.permute(0, 2, 3, 4, 5, 1).flatten(3)  # (N, oh, ow, W*W*C), the format of the kernel
    windows = minis.unfold(2, vh - wh + 1, 1).unfold(3, vw - ww + 1, 1)  # (K, C, W, W, D, D)
    return pixels.permute(0, 3, 1, 2), windows.permute(0, 2, 3, 1, 4, 5).flatten(1, 3)


def _space_to_depth(x: Tensor, block: Pair) -> Tensor:
    """(N, C, H, W) -> (N, e*e*C, H/e, W/e), keeps channels_last.

    As ``pixel_unshuffle`` but with a pair, and the channels innermost: in channels_last, runs of e*C values move whole.
    """
    (eh, ew), (h, w) = block, x.shape[2:]
    blocks = x.unflatten(3, (w // ew, ew)).unflatten(2, (h // eh, eh))  # (N, C, H/e, e, W/e, e)
    if x.stride(1) == 1:
        return blocks.permute(0, 2, 4, 3, 5, 1).flatten(3, 5).permute(0, 3, 1, 2)
    return blocks.permute(0, 3, 5, 1, 2, 4).flatten(1, 3)


def _check_tensors(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Ranks, dtypes and devices."""
    for name, tensor in (("input", input), ("weight", weight), ("bias", bias)):
        if tensor is None and name == "bias":
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must be of a floating-point dtype, got {tensor.dtype}")
        if tensor.device != input.device:
            raise ValueError(f"{name} is on {tensor.device} and input on {input.device}: move them to one device")
        if tensor.dtype != input.dtype and (input.dtype == torch.float64 or not _autocast_enabled(input)):
            raise TypeError(f"{name} is {tensor.dtype} and input {input.dtype}: convert one to the other's dtype")
    if input.dim() not in (3, 4):
        raise ValueError(f"input must be (N, C, H, W) or (C, H, W), got shape {tuple(input.shape)}")
    if weight.dim() != 4:
        raise ValueError(f"weight must hold the epitomes as (K, C, V, V), got shape {tuple(weight.shape)}")
    if bias is not None and bias.dim() != 1:
        raise ValueError(f"bias must have one dimension, got shape {tuple(bias.shape)}")


def _check_fit(input: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> None:
    """Channels, image and bias against the geometry."""
    if 0 in weight.shape[:2]:
        raise ValueError(f"weight must hold at least one epitome of one channel, got shape {tuple(weight.shape)}")
    if input.shape[-3] != weight.shape[1]:
        raise ValueError(f"input has {input.shape[-3]} channels and the epitomes of weight have {weight.shape[1]}")
    geometry.output_size(*input.shape[-2:])
    channels = weight.shape[0] * geometry.outputs[0] * geometry.outputs[1]
    if bias is not None and bias.shape[0] != channels:
        raise ValueError(f"bias must have one value for each of the {channels} output channels, got {bias.shape[0]}")
