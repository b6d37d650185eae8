"""The public functions: each checks its arguments, chooses an algorithm (`ops.choice`) and runs it (`ops.compute`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, overload

import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Geometry, PoolGeometry, Size, TileGeometry, as_pair, slide
from epitomic.ops import compute
from epitomic.ops.choice import check_algorithm, choose_tile, working_dtype
from epitomic.ops.filters import check_eps
from epitomic.ops.inputs import (
    Computed,
    by_groups,
    check_channels,
    check_tensors,
    compute_dtype,
    on_batch,
    pad_unevenly,
    resolve_padding,
    returned,
)
from epitomic.ops.selection import Call, select_algorithm


@overload
def epitomic_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_size: Size,
    pool_size: Size | None = None,
    stride: Size | None = None,
    padding: Size | str = 0,
    epitome_stride: Size = 1,
    groups: int = 1,
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
    padding: Size | str = 0,
    epitome_stride: Size = 1,
    groups: int = 1,
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
    padding: Size | str = 0,
    epitome_stride: Size = 1,
    groups: int = 1,
    normalize: bool = False,
    eps: float = 0.01,
    algorithm: str = "auto",
    return_positions: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Finds the best match of each input patch in each epitome: one call in place of ``conv2d`` + ``max_pool2d``.

    This is epitomic convolution, Eq. 2 of the paper, or Eq. 3 with ``normalize``. The paper: Papandreou, "Deep Epitomic
    Convolutional Neural Networks", 2014, https://arxiv.org/abs/1406.2732.

    All sizes are ints or (height, width) pairs.

    Args:
        input: Images, (N, C, H, W), or one image, (C, H, W).
        weight: The epitomes, (K, C / groups, V, V).
        bias: One value per output channel, added after the maximum.
        kernel_size: W, the size of the filters in the epitomes.
        pool_size: D. One maximum is taken over D x D neighbouring filters. None means one over the whole epitome.
        stride: Step from one patch of the input to the next. None means ``pool_size``, as in ``max_pool2d``.
        padding: Rows and columns of zeros added on each side of the input, ``"same"`` (with a stride of 1) or
            ``"valid"``.
        epitome_stride: Step from one filter of an epitome to the next.
        groups: Number of groups of channels, as in ``conv2d``.
        normalize: Whether to normalise the mean and contrast of each filter (Eq. 3).
        eps: lambda of Eq. 3.
        algorithm: ``"auto"``, ``"reference"``, ``"direct"``, ``"one_convolution"``, ``"winograd"``, ``"native"``,
            ``"triton"`` or ``"triton_winograd"``. All give the same result to rounding; docs/performance.md says when
            ``"auto"`` takes which.
        return_positions: Whether to return also where in the epitome each maximum was.

    Returns:
        The responses, (N, K * m * m, oh, ow) with m x m output channels per epitome (one for a mini-epitome). With
        ``return_positions``, also the winning p of Eq. 2, an int64 tensor of the same shape, row-major in the D x D
        window. Exact ties go to the lowest p, which alone gets the gradient.

    Example:
        >>> import torch
        >>> x, epitomes = torch.randn(8, 3, 32, 32), torch.randn(16, 3, 6, 6)
        >>> epitomic_conv2d(x, epitomes, kernel_size=5, pool_size=2).shape  # 5 x 5 filters, 2 x 2 of them per epitome
        torch.Size([8, 16, 14, 14])
    """
    check_tensors(input, weight, bias, holds="epitomes as (K, C / groups, V, V)")
    geometry = Geometry.create(
        kernel_size=kernel_size,
        pool_size=pool_size,
        stride=stride,
        padding=0,
        epitome_size=[int(v) for v in weight.shape[2:]],
        epitome_stride=epitome_stride,
    )
    input, rest = pad_unevenly(input, resolve_padding(padding, geometry.kernel, geometry.stride, (1, 1)))
    geometry = replace(geometry, padding=rest)
    outputs = geometry.outputs[0] * geometry.outputs[1]
    check_channels(input, weight, bias, groups, outputs, one="epitome", many="epitomes")
    if normalize:
        check_eps(eps)
    geometry.output_size(*input.shape[-2:])

    def run(algorithm: str, input: Tensor, weight: Tensor, bias: Tensor | None, positions: bool) -> Computed:
        def one_group(x: Tensor, weight: Tensor, bias: Tensor | None) -> Computed:
            return compute.epitomic(algorithm, x, weight, bias, geometry, normalize, eps)

        dtype = working_dtype(algorithm, compute_dtype(input))
        return on_batch(input, dtype, lambda x: by_groups(groups, x, weight, bias, one_group))

    call = Call(geometry, input, weight, bias, compute_dtype(input), normalize, return_positions, run)
    chosen = select_algorithm(algorithm, call)
    return returned(*run(chosen, input, weight, bias, return_positions), return_positions)


@overload
def max_pool_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    pool_size: Size,
    pool_stride: Size | None = None,
    pool_padding: Size = 0,
    stride: Size = 1,
    padding: Size | str = 0,
    groups: int = 1,
    ceil_mode: bool = False,
    normalize: bool = False,
    eps: float = 0.01,
    algorithm: str = "auto",
    return_positions: Literal[False] = False,
) -> Tensor: ...


@overload
def max_pool_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    pool_size: Size,
    pool_stride: Size | None = None,
    pool_padding: Size = 0,
    stride: Size = 1,
    padding: Size | str = 0,
    groups: int = 1,
    ceil_mode: bool = False,
    normalize: bool = False,
    eps: float = 0.01,
    algorithm: str = "auto",
    return_positions: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def max_pool_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    pool_size: Size,
    pool_stride: Size | None = None,
    pool_padding: Size = 0,
    stride: Size = 1,
    padding: Size | str = 0,
    groups: int = 1,
    ceil_mode: bool = False,
    normalize: bool = False,
    eps: float = 0.01,
    algorithm: str = "auto",
    return_positions: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Convolution followed by max-pooling (Eq. 1), in one call: what ``max_pool2d(conv2d(...))`` computes.

    The fast algorithms never store the responses of the convolution. All sizes are ints or (height, width) pairs.

    The results differ from those of torch's two calls in three ways. Where two responses are equal up to rounding,
    either may win. Where the output is NaN, the position may be any. If the input has an infinite value, or the
    convolution a stride, outputs beside a NaN may be NaN, too. ``algorithm="direct"`` takes torch's two calls.

    Args:
        input: Images, (N, C, H, W), or one image, (C, H, W).
        weight: The filters, (K, C / groups, W, W).
        bias: One value per output channel.
        pool_size: D. One maximum is taken over D x D neighbouring positions.
        pool_stride: Step from one pooling window to the next. None means ``pool_size``.
        pool_padding: Rows and columns by which windows hang over each side of the responses. What lies outside is left
            out of the maximum.
        stride: Step of the convolution.
        padding: Rows and columns of zeros added on each side of the input, ``"same"`` (with a stride of 1) or
            ``"valid"``.
        groups: Number of groups of channels, as in ``conv2d``.
        ceil_mode: Whether windows that hang over the end count, too.
        normalize: Whether to normalise the mean and contrast of each filter (Eq. 3).
        eps: lambda of Eq. 3.
        algorithm: ``"auto"``, or one of ``"reference"``, ``"direct"``, ``"winograd"``, ``"native"``, ``"triton"``,
            ``"triton_winograd"``. All give the same result to rounding; docs/performance.md says when ``"auto"`` takes
            which.
        return_positions: Also return where in its window each maximum was.

    Returns:
        The responses, (N, K, oh, ow). With ``return_positions``, also the winning positions, an int64 tensor of the
        same shape, row-major in the D x D window. Exact ties go to the lowest position, and the gradient to that one
        winner.

    Example:
        >>> import torch
        >>> x, filters = torch.randn(8, 3, 32, 32), torch.randn(16, 3, 5, 5)
        >>> max_pool_conv2d(x, filters, pool_size=2).shape
        torch.Size([8, 16, 14, 14])
    """
    check_tensors(input, weight, bias, holds="filters as (K, C / groups, W, W)")
    check_channels(input, weight, bias, groups, 1, one="filter", many="filters")
    geometry = PoolGeometry.create(
        kernel_size=[int(v) for v in weight.shape[2:]],
        stride=stride,
        padding=0,
        pool_size=pool_size,
        pool_stride=pool_stride,
        pool_padding=pool_padding,
        ceil_mode=ceil_mode,
    )
    input, rest = pad_unevenly(input, resolve_padding(padding, geometry.kernel, geometry.stride, (1, 1)))
    geometry = replace(geometry, padding=rest)
    if normalize:
        check_eps(eps)
    geometry.output_size(*input.shape[-2:])

    def run(algorithm: str, input: Tensor, weight: Tensor, bias: Tensor | None, positions: bool) -> Computed:
        def on(x: Tensor) -> Computed:
            return compute.max_pool(algorithm, x, weight, bias, geometry, groups, normalize, eps, positions)

        return on_batch(input, working_dtype(algorithm, compute_dtype(input)), on)

    call = Call(geometry, input, weight, bias, compute_dtype(input), normalize, return_positions, run)
    chosen = select_algorithm(algorithm, call)
    return returned(*run(chosen, input, weight, bias, return_positions), return_positions)


def winograd_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
    *,
    algorithm: str = "auto",
) -> Tensor:
    """Convolution with fewer multiplications: the arguments and, to rounding, the results of ``conv2d``.

    It takes the kernel of `max_pool_conv2d` without the maximum, D x D outputs at a time. Small filters of step 1 gain
    most. In float32 the rounding error is up to 5 times that of ``conv2d``. A NaN or an infinity in the input may make
    all D x D outputs of its tiles NaN.

    Args:
        input: Images, (N, C, H, W), or one image, (C, H, W).
        weight: The filters, (K, C / groups, W, W).
        bias: One value per output channel.
        stride: Step of the convolution.
        padding: Rows and columns of zeros added on each side of the input, ``"same"`` or ``"valid"``.
        dilation: Step between the values of a filter.
        groups: Number of groups of channels.
        algorithm: ``"direct"`` is ``conv2d``. ``"native"`` and ``"winograd"`` need a stride and a dilation of 1.
            ``"auto"`` takes ``"native"`` where it is faster (docs/performance.md).

    Returns:
        The responses, (N, K, oh, ow).

    Example:
        >>> import torch
        >>> x, filters = torch.randn(8, 64, 17, 17), torch.randn(64, 64, 3, 3)
        >>> winograd_conv2d(x, filters, padding=1).shape
        torch.Size([8, 64, 17, 17])
    """
    check_tensors(input, weight, bias, holds="filters as (K, C / groups, W, W)")
    check_channels(input, weight, bias, groups, 1, one="filter", many="filters")
    check_algorithm(algorithm)
    steps, dilations = as_pair("stride", stride), as_pair("dilation", dilation)
    kernel = int(weight.shape[2]), int(weight.shape[3])
    x, rest = pad_unevenly(input, resolve_padding(padding, kernel, steps, dilations))
    unfit = None
    if steps != (1, 1) or dilations != (1, 1):
        unfit = f"it needs stride=1 and dilation=1, and here they are {steps} and {dilations}"
        geometry = TileGeometry(kernel, rest, (1, 1), (1, 1))
    else:
        slide((x.shape[-2], x.shape[-1]), kernel, steps, rest)
        geometry = choose_tile(kernel, rest, x.shape[-2], x.shape[-1])
    if algorithm == "reference":
        raise ValueError("algorithm='reference' is that of pooled layers; use 'direct', which is conv2d")

    def run(algorithm: str, x: Tensor, weight: Tensor, bias: Tensor | None, positions: bool) -> Computed:
        if algorithm == "direct":
            return F.conv2d(x, weight, bias, steps, rest, dilations, groups), None

        def on(x: Tensor) -> Computed:
            return compute.plain(algorithm, x, weight, bias, geometry, groups), None

        return on_batch(x, working_dtype(algorithm, compute_dtype(x)), on)

    call = Call(geometry, x, weight, bias, compute_dtype(input), False, False, run, unfit)
    return run(select_algorithm(algorithm, call), x, weight, bias, False)[0]
