"""The layers: `EpitomicConv2d`, and what the paper compares it with (`NormConv2d`, `MaxoutConv2d`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.functional import ALGORITHMS, epitomic_conv2d
from epitomic.geometry import Geometry, Pair, Size, as_pair
from epitomic.ops.filters import gather_filters, mini_epitomes, normalize_filters

torch.fx.wrap("epitomic_conv2d")  # one call in a graph of torch.fx, as F.conv2d is

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class EpitomicConv2d(nn.Module):
    """Epitomic convolution: one layer in place of ``nn.Conv2d`` + ``nn.MaxPool2d`` (Papandreou 2014).

    Each epitome is a little larger than its filters and holds ``pool_size`` x ``pool_size`` overlapping ones; each
    input patch keeps its best match. The non-linearity is yours to add, as after ``nn.Conv2d``.

    All sizes are ints or (height, width) pairs.

    Args:
        in_channels: C, channels of the input.
        out_channels: Channels of the output: epitomes times outputs per epitome.
        kernel_size: W, the size of the filters.
        pool_size: D, the D x D neighbouring filters under one maximum.
        stride: Step of the patches in the input. None: ``pool_size``, as in ``nn.MaxPool2d``.
        padding: Added on each side of the input.
        epitome_size: V. None: the mini-epitome, ``kernel_size + (pool_size - 1) * epitome_stride``, one output each. A
            larger one is the topographic layer, with (floor(((V - W)/e + 1 - D) / D) + 1)^2 outputs per epitome.
        epitome_stride: e, the step from one filter of the epitome to the next.
        normalize: Mean + contrast normalisation of each filter (Eq. 3). Turn weight decay off for such layers.
        eps: lambda of Eq. 3.
        bias: Whether to learn a bias, added after the maximum.
        padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        algorithm: See `epitomic_conv2d`.
        device: Where to make the parameters.
        dtype: Of the parameters.

    Attributes:
        weight: The epitomes, (epitomes, in_channels, V, V).
        bias: (out_channels,) or None.
        geometry: Every size of the layer, resolved and checked.

    Example:
        >>> layer = EpitomicConv2d(3, 96, 8, pool_size=3, stride=4, epitome_stride=2)  # layer 1 of the paper's network
        >>> layer.weight.shape, layer(torch.randn(1, 3, 220, 220)).shape
        (torch.Size([96, 3, 12, 12]), torch.Size([1, 96, 54, 54]))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        *,
        pool_size: Size = 2,
        stride: Size | None = None,
        padding: Size = 0,
        epitome_size: Size | None = None,
        epitome_stride: Size = 1,
        normalize: bool = False,
        eps: float = 0.01,
        bias: bool = True,
        padding_mode: str = "zeros",
        algorithm: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = _positive("in_channels", in_channels)
        self.out_channels = _positive("out_channels", out_channels)
        self.geometry = Geometry.create(
            kernel_size=kernel_size,
            pool_size=pool_size,
            stride=stride,
            padding=padding,
            epitome_size=epitome_size,
            epitome_stride=epitome_stride,
        )
        if normalize and not eps >= 0:
            raise ValueError(f"eps, the lambda of the contrast, must not be negative, got {eps}")
        if algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
        self.normalize = normalize
        self.eps = eps
        self.padding_mode = _padding_mode(padding_mode)
        self.algorithm = algorithm

        per_epitome = math.prod(self.geometry.outputs)
        if out_channels % per_epitome:
            below = out_channels // per_epitome * per_epitome
            fits = f"{below} or {below + per_epitome}" if below else f"{per_epitome}"
            raise ValueError(
                f"out_channels={out_channels} is not a multiple of the {per_epitome} outputs of each epitome of size "
                f"{self.geometry.epitome}: use {fits}"
            )
        shape = (out_channels // per_epitome, in_channels, *self.geometry.epitome)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    @property
    def kernel_size(self) -> Pair:
        """W, height and width."""
        return self.geometry.kernel

    @property
    def pool_size(self) -> Pair:
        """D, height and width."""
        return self.geometry.pool

    @property
    def stride(self) -> Pair:
        """Step of the patches in the input."""
        return self.geometry.stride

    @property
    def padding(self) -> Pair:
        """On each side of the input."""
        return self.geometry.padding

    def reset_parameters(self) -> None:
        """As ``nn.Conv2d`` of the same filter size: uniform, with the fan-in of a filter (W*W*C), not of an epitome."""
        _reset(self.weight, self.bias, fan_in=self.in_channels * math.prod(self.geometry.kernel))

    def forward(self, input: Tensor) -> Tensor:
        """Responses of the best matches, (N, out_channels, oh, ow)."""
        return self._match(input, return_positions=False)

    def match(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """`forward`, and where in its epitome each maximum was: p of Eq. 2, row-major in the D x D window."""
        y, positions = self._match(input, return_positions=True)
        return y, positions

    def _match(self, input: Tensor, return_positions: bool) -> Any:
        g = self.geometry
        input, padding = _pad(input, g.padding, self.padding_mode)
        return epitomic_conv2d(
            input,
            self.weight,
            self.bias,
            kernel_size=g.kernel,
            pool_size=g.pool,
            stride=g.stride,
            padding=padding,
            epitome_stride=g.epitome_stride,
            normalize=self.normalize,
            eps=self.eps,
            algorithm=self.algorithm,
            return_positions=return_positions,  # type: ignore[call-overload]
        )

    def filters(self) -> Tensor:
        """The filters that the epitomes hold, (out_channels, D*D, in_channels, W, W), normalised where the layer is."""
        minis = mini_epitomes(self.weight, self.geometry)
        filters = gather_filters(minis, self.geometry.kernel, self.geometry.epitome_stride)
        return normalize_filters(filters, self.eps) if self.normalize else filters

    def extra_repr(self) -> str:
        """The arguments that matter, for ``print(model)``."""
        g = self.geometry
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={g.kernel}, pool_size={g.pool}"]
        parts.append(f"stride={g.stride}")
        if g.padding != (0, 0):
            parts.append(f"padding={g.padding}")
        if g.epitome != g.mini:
            parts.append(f"epitome_size={g.epitome}")
        if g.epitome_stride != (1, 1):
            parts.append(f"epitome_stride={g.epitome_stride}")
        if self.normalize:
            parts.append(f"normalize=True, eps={self.eps}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode!r}")
        if self.algorithm != "auto":
            parts.append(f"algorithm={self.algorithm!r}")
        return ", ".join(parts)


class NormConv2d(nn.Conv2d):
    """``nn.Conv2d`` with mean + contrast normalisation of its filters (Eq. 3): the paper's Max-Pool + norm.

    Takes the arguments of ``nn.Conv2d``, then ``eps``, the lambda of Eq. 3. Turn weight decay off for such layers.

    Example:
        >>> NormConv2d(3, 96, 8, stride=2)(torch.randn(1, 3, 220, 220)).shape
        torch.Size([1, 96, 107, 107])
    """

    def __init__(self, *args: Any, eps: float = 0.01, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not eps >= 0:
            raise ValueError(f"eps, the lambda of the contrast, must not be negative, got {eps}")
        self.eps = eps

    def filters(self) -> Tensor:
        """The normalised filters, (out_channels, in_channels / groups, W, W)."""
        return normalize_filters(self.weight, self.eps)

    def forward(self, input: Tensor) -> Tensor:
        """Responses of the normalised filters."""
        return self._conv_forward(input, self.filters(), self.bias)

    def extra_repr(self) -> str:
        """The arguments that matter, for ``print(model)``."""
        return f"{super().extra_repr()}, eps={self.eps}"


class MaxoutConv2d(nn.Module):
    """Convolution with maxout (Goodfellow et al. 2013): the maximum over ``pieces`` free filters per output channel.

    What an epitome of D x D = ``pieces`` filters would be if they did not overlap. The bias of each piece is inside the
    maximum, as in the maxout paper.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the filters.
        pieces: Filters per output channel.
        stride: Step of the patches.
        padding: Added on each side of the input.
        bias: Whether to learn a bias per piece.
        padding_mode: As in ``nn.Conv2d``.
        device: Where to make the parameters.
        dtype: Of the parameters.

    Example:
        >>> MaxoutConv2d(3, 16, 5, pieces=4)(torch.randn(8, 3, 32, 32)).shape
        torch.Size([8, 16, 28, 28])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        *,
        pieces: int = 2,
        stride: Size = 1,
        padding: Size = 0,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = _positive("in_channels", in_channels)
        self.out_channels = _positive("out_channels", out_channels)
        self.kernel_size = as_pair("kernel_size", kernel_size)
        self.pieces = _positive("pieces", pieces)
        self.stride = as_pair("stride", stride)
        self.padding = as_pair("padding", padding, at_least=0)
        self.padding_mode = _padding_mode(padding_mode)
        filters = out_channels * pieces
        self.weight = nn.Parameter(torch.empty(filters, in_channels, *self.kernel_size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(filters, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As ``nn.Conv2d``."""
        _reset(self.weight, self.bias, fan_in=self.in_channels * math.prod(self.kernel_size))

    def forward(self, input: Tensor) -> Tensor:
        """The best of each output's pieces, (N, out_channels, oh, ow)."""
        input, padding = _pad(input, self.padding, self.padding_mode)
        responses = F.conv2d(input, self.weight, self.bias, stride=self.stride, padding=padding)
        # max, not amax, which divides the gradient among equals: to one piece, as in max_pool2d, and faster.
        return responses.unflatten(-3, (self.out_channels, self.pieces)).max(-3).values

    def extra_repr(self) -> str:
        """The arguments that matter, for ``print(model)``."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, pieces={self.pieces}"
        text = f"{text}, stride={self.stride}, padding={self.padding}, bias={self.bias is not None}"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode!r}"


def _positive(name: str, value: int) -> int:
    if isinstance(value, Sequence):
        raise TypeError(f"{name} must be an int, got {value!r}")
    return as_pair(name, value)[0]


def _padding_mode(mode: str) -> str:
    if mode not in PADDING_MODES:
        raise ValueError(f"padding_mode must be one of {', '.join(PADDING_MODES)}, got {mode!r}")
    return mode


def _pad(input: Tensor, padding: tuple[int, int], mode: str) -> tuple[Tensor, tuple[int, int]]:
    """Pads by ``mode``; returns the input and the zero padding that is left for the convolution to do."""
    if mode == "zeros":
        return input, padding
    return F.pad(input, (padding[1], padding[1], padding[0], padding[0]), mode=mode), (0, 0)


def _reset(weight: Tensor, bias: Tensor | None, fan_in: int) -> None:
    bound = 1 / math.sqrt(fan_in)
    nn.init.uniform_(weight, -bound, bound)
    if bias is not None:
        nn.init.uniform_(bias, -bound, bound)
