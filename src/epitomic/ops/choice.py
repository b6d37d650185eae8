"""The choice of algorithm: which one ``"auto"`` means, and whether a given one can serve a call."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from epitomic.geometry import Geometry, Pair, PoolGeometry, TileGeometry
from epitomic.ops.library import why_not_native
from epitomic.ops.tracing import in_forward_mode, needs_known_operators
from epitomic.ops.transforms import MAX_POINTS
from epitomic.ops.triton.served import TRITON, why_not_triton

ALGORITHMS = ("auto", "reference", "direct", "one_convolution", "winograd", "native", *TRITON)
WORTHWHILE = 64  # saved work (`saves_enough`) above which `winograd` wins (measured by benchmarks/auto.py)
TRANSFORMS = 8  # cost of the native kernel's transforms of one point, counted in channels of multiplications
DUAL_TRANSFORMS = 3.5  # the same per point of an axis, against one convolution (measured by benchmarks/auto_dual.py)
PACKING = 16  # cost of packing the weights for the native kernel, counted in patches
# Torch's gain from bfloat16 instructions, which our float32 kernel has to beat (measured by benchmarks/auto_dual.py).
BFLOAT16_PAIR, BFLOAT16_PLAIN = 1.6, 2.0
MAX_TILE = 6  # outputs per axis and patch of a plain convolution
# Points per axis of a plain convolution. With more, its error is over 10 times conv2d's (benchmarks/points.py).
PLAIN_POINTS = 6

Sizes = Geometry | PoolGeometry | TileGeometry


def check_algorithm(algorithm: str) -> None:
    """Raises an error that lists the algorithms if ``algorithm`` is none of them."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")


def choose_algorithm(
    algorithm: str, geometry: Sizes, input: Tensor, weight: Tensor, dtype: torch.dtype, unfit: str | None = None
) -> str:
    """Returns the algorithm that ``algorithm`` means for these tensors and the dtype to compute in.

    ``"auto"`` follows a rule. On a GPU it is that of `choose_on_gpu`. On CPU it is ``"native"``, ``"winograd"`` or
    ``"direct"``, by what was measured (docs/performance.md). The first two need float32, float64 or bfloat16, at most
    `MAX_POINTS` points per axis, and a call that is not traced, exported, transformed or differentiated in forward
    mode. Under these conditions

    - ``"native"`` serves float32 and bfloat16, where it is built and wins (`native_wins`);
    - ``"winograd"`` serves the rest where it saves enough (`saves_enough`), but not bfloat16.

    ``"direct"`` serves all other calls.

    Args:
        algorithm: What the user asked for.
        geometry: The sizes of the layer.
        input: (..., C, H, W).
        weight: (K, C / groups, ...).
        dtype: The dtype to compute in.
        unfit: Why the layer does not reduce to the kernel, or None if it does.

    Raises:
        ValueError: If ``algorithm`` is unknown or cannot serve this call. The message says why.
    """
    check_algorithm(algorithm)
    if algorithm == "one_convolution" and not isinstance(geometry, Geometry):
        return "direct"  # these layers are one convolution already
    if algorithm in TRITON and isinstance(geometry, TileGeometry):
        return "direct"  # a plain convolution has no maximum to fuse
    if algorithm in ("reference", "direct", "one_convolution"):
        return algorithm
    reason = unfit
    if reason:
        pass
    elif algorithm in TRITON:
        reason = why_triton_cannot_serve(algorithm, geometry, input, weight, dtype)
    elif max(geometry.points) > MAX_POINTS:
        reason = f"it serves at most {MAX_POINTS} points W/e + D - 1 per axis, and here they are {geometry.points}"
    elif dtype not in (torch.float32, torch.float64, torch.bfloat16):
        reason = f"it needs float32, float64 or bfloat16, and the input is {dtype}"
    elif in_forward_mode():  # the operator would drop the tangents without a word
        reason = "it has no forward-mode derivatives"
    not_native = why_not_native(working_dtype(algorithm, dtype), input.device)
    if algorithm == "native":
        reason = reason or not_native
    if algorithm != "auto":
        if reason:
            raise ValueError(f"algorithm={algorithm!r} cannot serve this call: {reason}; use 'direct' or 'auto'")
        return algorithm
    if input.device.type != "cpu":
        return "direct" if unfit or needs_known_operators() else choose_on_gpu(geometry, input, weight, dtype)
    if reason or needs_known_operators():
        return "direct"
    if not not_native:
        return "native" if native_wins(geometry, input, weight, dtype) else "direct"
    return "winograd" if dtype != torch.bfloat16 and saves_enough(geometry, weight.shape[1]) else "direct"


def choose_on_gpu(geometry: Sizes, input: Tensor, weight: Tensor, dtype: torch.dtype) -> str:
    """Returns the algorithm that a rule expects to be the fastest, by operations and bytes (`triton.rule`).

    The rule was never measured on a GPU. ``"direct"`` serves calls without a maximum, or that Triton cannot serve.
    """
    from epitomic.ops.triton.rule import Work, peaks

    if isinstance(geometry, TileGeometry) or max(geometry.pool) == 1:
        return "direct"
    names = [name for name in TRITON if not why_triton_cannot_serve(name, geometry, input, weight, dtype)]
    if not names:
        return "direct"
    work, gpu = Work.of(geometry, tuple(input.shape), tuple(weight.shape), dtype), peaks(input.device.index)
    return min(("direct", *names), key=lambda name: work.seconds(name, gpu))


def why_triton_cannot_serve(
    algorithm: str, geometry: Sizes, input: Tensor, weight: Tensor, dtype: torch.dtype
) -> str | None:
    """Returns why an algorithm in Triton cannot serve a call, or None if it can. See `choose_algorithm`."""
    if isinstance(geometry, TileGeometry):
        return "a plain convolution has no maximum to fuse"
    if in_forward_mode():
        return "it has no forward-mode derivatives"
    images, outputs = math.prod(input.shape[:-3]), weight.shape[0]
    if isinstance(geometry, Geometry):
        outputs *= math.prod(geometry.outputs)
    responses = images * outputs * math.prod(geometry.output_size(input.shape[-2], input.shape[-1]))
    sides = zip(input.shape[-2:], geometry.padding, geometry.kernel, strict=True)
    padded = images * input.shape[-3] * math.prod(size + 2 * padding + kernel for size, padding, kernel in sides)
    elements = max(padded, responses)  # with what rounds the sides up to whole strides
    return why_not_triton(algorithm, geometry.pool, geometry.points, elements, dtype, input.device)


def working_dtype(algorithm: str, dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype in which an algorithm computes a result of ``dtype``.

    Our CPU kernels compute bfloat16 in float32. In bfloat16 the transforms would lose too much, and fewer
    multiplications gain more than bfloat16 instructions would.
    """
    ours = algorithm in ("auto", "winograd", "native")
    return torch.float32 if dtype == torch.bfloat16 and ours else dtype


def native_wins(geometry: Sizes, input: Tensor, weight: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Whether the native kernel is faster than torch's convolutions.

    For epitomes it is faster wherever there is a maximum to take, D > 1. A convolution, with pooling or without, has to
    save enough multiplications to pay for two things: the transforms, whose share falls with the number of channels,
    and the packing of the weights, whose share falls with the number of patches. In bfloat16 torch's convolution is
    faster if the processor has instructions for it, so more has to be saved.
    """
    if isinstance(geometry, Geometry):
        return max(geometry.pool) > 1
    images = math.prod(input.shape[:-3])
    if isinstance(geometry, TileGeometry):
        patches, step, speed = images * geometry.patches, 1, BFLOAT16_PLAIN
    else:
        patches = images * math.prod(geometry.output_size(input.shape[-2], input.shape[-1]))
        step, speed = math.prod(geometry.stride), BFLOAT16_PAIR
    if dtype != torch.bfloat16 or not has_bfloat16_instructions():
        speed = 1
    transforms = DUAL_TRANSFORMS * max(geometry.points)
    overhead = transforms / (weight.shape[1] * step) + transforms / weight.shape[0] + PACKING / max(1, patches)
    return geometry.saved > 1.2 * speed * (1 + overhead)


@functools.cache
def has_bfloat16_instructions() -> bool:
    """Whether the processor multiplies bfloat16 numbers itself (AVX512-BF16 or AMX)."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def saves_enough(geometry: Sizes, channels: int) -> bool:
    """Whether `winograd` saves more than its transforms cost: D C e^2 (s - 1) >= `WORTHWHILE`.

    s is the factor of multiplications saved. The more channels, the smaller the transforms' share. e is the epitome
    stride, or the stride of a convolution before its pooling. A plain convolution in torch calls never wins.
    """
    if isinstance(geometry, TileGeometry):
        return False
    step = geometry.epitome_stride if isinstance(geometry, Geometry) else geometry.stride
    window = math.sqrt(math.prod(geometry.pool))
    return window * channels * math.prod(step) * (geometry.saved - 1) >= WORTHWHILE


def choose_tile(kernel: Pair, padding: Pair, height: int, width: int) -> TileGeometry:
    """Returns the sizes of a plain convolution with the tile that takes the fewest multiplications.

    Outputs that a tile computes beyond the end count as well. Filters of one row or column may take more points.
    """
    responses = height + 2 * padding[0] - kernel[0] + 1, width + 2 * padding[1] - kernel[1] + 1
    limit = MAX_POINTS if min(kernel) == 1 else PLAIN_POINTS
    tile = []
    for n, w in zip(responses, kernel, strict=True):
        products = {d: -(-n // d) * (w + d - 1) for d in range(1, MAX_TILE + 1) if d == 1 or w + d - 1 <= limit}
        tile.append(min(products, key=products.__getitem__))
    return TileGeometry(kernel, padding, responses, (tile[0], tile[1]))


def has_few_channels(epitomes: int, channels: int, kernel: Pair, pool: Pair) -> bool:
    """Whether the native kernel is faster without transforms (`reductions.pixels_to_channels`).

    This holds where D^2 W^2 multiplications per channel without transforms cost less than V^2 with them. It does
    not hold where the gathered patches would be much larger than the output.
    """
    (wh, ww), (dh, dw) = kernel, pool
    direct = dh * dw * (wh * ww * channels + TRANSFORMS)
    winograd = (wh + dh - 1) * (ww + dw - 1) * (channels + TRANSFORMS)
    return direct < winograd and wh * ww * channels <= 2 * epitomes
