"""The layers: `EpitomicConv2d`, its dual `MaxPoolConv2d`, and what the paper compares them with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.functional import epitomic_conv2d, max_pool_conv2d, winograd_conv2d
from epitomic.geometry import Geometry, Pair, PoolGeometry, Size, as_pair
from epitomic.ops.choice import check_algorithm
from epitomic.ops.filters import check_eps, gather_filters, normalize_filters

torch.fx.wrap("epitomic_conv2d")  # makes it one call in a graph of torch.fx, like F.conv2d
torch.fx.wrap("max_pool_conv2d")
torch.fx.wrap("winograd_conv2d")

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Matching(nn.Module):
    """What the layers that keep maxima share: parameters, padding modes, and the call with or without positions."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        geometry: Geometry | PoolGeometry,
        weight_size: Pair,
        *,
        outputs: int,
        groups: int,
        normalize: bool,
        eps: float,
        bias: bool,
        padding_mode: str,
        algorithm: str,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.in_channels = _positive("in_channels", in_channels)
        self.out_channels = _positive("out_channels", out_channels)
        self.groups = _positive("groups", groups)
        self.geometry = geometry
        if normalize:
            check_eps(eps)
        check_algorithm(algorithm)
        self.normalize = normalize
        self.eps = eps
        self.padding_mode = _padding_mode(padding_mode)
        self.algorithm = algorithm
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels // outputs)):
            if channels % groups:
                per_epitome = f" / {outputs} outputs per epitome" if name == "out_channels" and outputs > 1 else ""
                raise ValueError(f"groups must divide {name}{per_epitome}, and {groups} does not divide {channels}")
        shape = (out_channels // outputs, in_channels // groups, *weight_size)
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
        """Step from one patch of the input to the next."""
        return self.geometry.stride

    @property
    def padding(self) -> Pair:
        """Rows and columns of padding on each side of the input."""
        return self.geometry.padding

    def reset_parameters(self) -> None:
        """Draws weights and biases as ``nn.Conv2d`` does: uniformly, with the fan-in W*W*C of a filter."""
        _reset(self.weight, self.bias, fan_in=self.weight.shape[1] * math.prod(self.geometry.kernel))

    def forward(self, input: Tensor) -> Tensor:
        """Returns the responses of the best matches, (N, out_channels, oh, ow)."""
        return self._match(input, return_positions=False)

    def match(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the responses, and where each maximum was: its position in the D x D window, row-major."""
        return self._match(input, return_positions=True)

    def _match(self, input: Tensor, return_positions: bool) -> Any:
        raise NotImplementedError

    def _repr(self, sizes: dict[str, bool]) -> str:
        """Joins the arguments to show: those of ``sizes`` that are true, and those that all such layers have."""
        shown = {
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}": True,
            f"pool_size={self.pool_size}": True,
            **sizes,
            f"groups={self.groups}": self.groups > 1,
            f"normalize=True, eps={self.eps}": self.normalize,
            "bias=False": self.bias is None,
            f"padding_mode={self.padding_mode!r}": self.padding_mode != "zeros",
            f"algorithm={self.algorithm!r}": self.algorithm != "auto",
        }
        return ", ".join(text for text, show in shown.items() if show)


class EpitomicConv2d(_Matching):
    """Epitomic convolution: one layer in place of ``nn.Conv2d`` + ``nn.MaxPool2d``.

    An epitome is a little larger than its filters: it holds ``pool_size`` x ``pool_size`` filters that overlap. For
    each input patch, the layer keeps the response of the filter that matches best (Eq. 2 of the paper). Add a
    non-linearity after it, as after ``nn.Conv2d``.

    The paper: Papandreou, "Deep Epitomic Convolutional Neural Networks", 2014, https://arxiv.org/abs/1406.2732.

    All sizes are ints or (height, width) pairs.

    Args:
        in_channels: C, the number of input channels.
        out_channels: Number of output channels: epitomes times outputs per epitome.
        kernel_size: W, the size of the filters.
        pool_size: D. One maximum is taken over D x D neighbouring filters.
        stride: Step from one patch of the input to the next. None means ``pool_size``, as in ``nn.MaxPool2d``.
        padding: Rows and columns added on each side of the input.
        epitome_size: V, the size of the epitomes. None means the mini-epitome,
            ``kernel_size + (pool_size - 1) * epitome_stride``, which gives one output channel. A larger size makes a
            topographic layer, with (floor(((V - W)/e + 1 - D) / D) + 1)^2 output channels per epitome.
        epitome_stride: e, the step from one filter of an epitome to the next.
        groups: Number of groups of channels, as in ``nn.Conv2d``.
        normalize: Whether to normalise the mean and contrast of each filter (Eq. 3). Turn weight decay off for such
            layers.
        eps: lambda of Eq. 3.
        bias: Whether to learn a bias. It is added after the maximum.
        padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        algorithm: How to compute the layer; see `epitomic_conv2d`.
        device: Device of the parameters.
        dtype: Data type of the parameters.

    Attributes:
        weight: The epitomes, (epitomes, in_channels / groups, V, V).
        bias: The biases, (out_channels,), or None.
        geometry: All sizes of the layer, resolved and checked.

    Example:
        >>> layer = EpitomicConv2d(3, 96, 8, pool_size=3, stride=4, epitome_stride=2)  # layer 1 of the paper's network
        >>> layer.weight.shape, layer(torch.randn(1, 3, 220, 220)).shape
        (torch.Size([96, 3, 12, 12]), torch.Size([1, 96, 54, 54]))
    """

    geometry: Geometry

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
        groups: int = 1,
        normalize: bool = False,
        eps: float = 0.01,
        bias: bool = True,
        padding_mode: str = "zeros",
        algorithm: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        geometry = Geometry.create(
            kernel_size=kernel_size,
            pool_size=pool_size,
            stride=stride,
            padding=padding,
            epitome_size=epitome_size,
            epitome_stride=epitome_stride,
        )
        per_epitome = math.prod(geometry.outputs)
        if _positive("out_channels", out_channels) % per_epitome:
            below = out_channels // per_epitome * per_epitome
            fits = f"{below} or {below + per_epitome}" if below else f"{per_epitome}"
            raise ValueError(
                f"out_channels={out_channels} is not a multiple of the {per_epitome} outputs of each epitome of size "
                f"{geometry.epitome}: use {fits}"
            )
        super().__init__(
            in_channels,
            out_channels,
            geometry,
            geometry.epitome,
            outputs=per_epitome,
            groups=groups,
            normalize=normalize,
            eps=eps,
            bias=bias,
            padding_mode=padding_mode,
            algorithm=algorithm,
            device=device,
            dtype=dtype,
        )

    @classmethod
    @torch.no_grad()
    def from_conv(
        cls,
        conv: nn.Conv2d,
        pool: nn.MaxPool2d,
        *,
        weights: tuple[Tensor, Tensor | None] | None = None,
        algorithm: str = "auto",
    ) -> EpitomicConv2d:
        """The epitomic layer that starts as convolution + max-pooling.

        Each epitome holds the filter in its middle, with a border of zeros as wide as the pooling can shift it. The
        layer computes what the pair computes, and can learn beyond it. At borders that the pooling's own padding makes
        the two differ: the pair ignores what lies outside, the layer sees zeros there.

        Args:
            conv: The convolution. Its weights are copied.
            pool: The max-pooling after it, without ``ceil_mode``.
            weights: Filters and biases to use in place of those of ``conv``.
            algorithm: See `epitomic_conv2d`.

        Example:
            >>> conv, pool = nn.Conv2d(3, 8, 3), nn.MaxPool2d(2)
            >>> layer, x = EpitomicConv2d.from_conv(conv, pool), torch.randn(1, 3, 10, 10)
            >>> torch.allclose(layer(x), pool(conv(x)), atol=1e-5)
            True
        """
        _check_pair(conv, pool)
        filters, bias = weights or (conv.weight, conv.bias)
        step = as_pair("stride", conv.stride)
        pools, pool_stride = as_pair("pool_size", pool.kernel_size), as_pair("pool_stride", pool.stride)
        border = tuple((d - 1) * s for d, s in zip(pools, step, strict=True))
        padding = as_pair("padding", conv.padding, minimum=0)
        outside = as_pair("pool_padding", pool.padding, minimum=0)
        layer = cls(
            conv.in_channels,
            conv.out_channels,
            (conv.kernel_size[0] + border[0], conv.kernel_size[1] + border[1]),
            pool_size=pools,
            stride=(pool_stride[0] * step[0], pool_stride[1] * step[1]),
            padding=(padding[0] + outside[0] * step[0], padding[1] + outside[1] * step[1]),
            epitome_stride=step,
            groups=conv.groups,
            bias=bias is not None,
            padding_mode=conv.padding_mode,
            algorithm=algorithm,
            device=conv.weight.device,
            dtype=conv.weight.dtype,
        )
        layer.weight.copy_(F.pad(filters, (border[1], border[1], border[0], border[0])))
        if layer.bias is not None and bias is not None:
            layer.bias.copy_(bias)
        return layer

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
            groups=self.groups,
            normalize=self.normalize,
            eps=self.eps,
            algorithm=self.algorithm,
            return_positions=return_positions,  # type: ignore[call-overload]
        )

    def filters(self) -> Tensor:
        """Returns the filters, (out_channels, D*D, in_channels / groups, W, W), normalised if the layer is."""
        filters = gather_filters(self.weight, self.geometry)
        return normalize_filters(filters, self.eps) if self.normalize else filters

    def extra_repr(self) -> str:
        """The arguments that matter, for ``print(model)``."""
        g = self.geometry
        return self._repr(
            {
                f"stride={g.stride}": True,
                f"padding={g.padding}": g.padding != (0, 0),
                f"epitome_size={g.epitome}": g.epitome != g.mini,
                f"epitome_stride={g.epitome_stride}": g.epitome_stride != (1, 1),
            }
        )


class MaxPoolConv2d(_Matching):
    """Convolution and max-pooling in one layer (Eq. 1): computes what ``nn.Conv2d`` + ``nn.MaxPool2d`` compute, faster.

    The state dict of an ``nn.Conv2d`` loads as it is. All sizes are ints or (height, width) pairs. `max_pool_conv2d`
    says what an input that is not finite gives.

    Args:
        in_channels: C, the number of input channels.
        out_channels: K, the number of output channels.
        kernel_size: W, the size of the filters.
        pool_size: D. One maximum is taken over D x D neighbouring positions.
        pool_stride: Step from one pooling window to the next. None means ``pool_size``, as in ``nn.MaxPool2d``.
        pool_padding: Rows and columns by which pooling windows hang over each side of the responses.
        stride: Step of the convolution.
        padding: Rows and columns added on each side of the input.
        groups: Number of groups of channels, as in ``nn.Conv2d``.
        ceil_mode: Whether windows that hang over the end count, too.
        normalize: Whether to normalise the mean and contrast of each filter (Eq. 3). Turn weight decay off for such
            layers.
        eps: lambda of Eq. 3.
        bias: Whether to learn a bias.
        padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        algorithm: How to compute the layer; see `max_pool_conv2d`.
        device: Device of the parameters.
        dtype: Data type of the parameters.

    Attributes:
        weight: The filters, (out_channels, in_channels / groups, W, W).
        bias: The biases, (out_channels,), or None.
        geometry: All sizes of the layer, resolved and checked.

    Example:
        >>> layer = MaxPoolConv2d(3, 96, 8, pool_size=3, stride=2, ceil_mode=True)  # of the paper's Max-Pool network
        >>> layer.weight.shape, layer(torch.randn(1, 3, 220, 220)).shape
        (torch.Size([96, 3, 8, 8]), torch.Size([1, 96, 36, 36]))
    """

    geometry: PoolGeometry

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        *,
        pool_size: Size = 2,
        pool_stride: Size | None = None,
        pool_padding: Size = 0,
        stride: Size = 1,
        padding: Size = 0,
        groups: int = 1,
        ceil_mode: bool = False,
        normalize: bool = False,
        eps: float = 0.01,
        bias: bool = True,
        padding_mode: str = "zeros",
        algorithm: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        geometry = PoolGeometry.create(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            pool_size=pool_size,
            pool_stride=pool_stride,
            pool_padding=pool_padding,
            ceil_mode=ceil_mode,
        )
        super().__init__(
            in_channels,
            out_channels,
            geometry,
            geometry.kernel,
            outputs=1,
            groups=groups,
            normalize=normalize,
            eps=eps,
            bias=bias,
            padding_mode=padding_mode,
            algorithm=algorithm,
            device=device,
            dtype=dtype,
        )

    def _match(self, input: Tensor, return_positions: bool) -> Any:
        g = self.geometry
        input, padding = _pad(input, g.padding, self.padding_mode)
        return max_pool_conv2d(
            input,
            self.weight,
            self.bias,
            pool_size=g.pool,
            pool_stride=g.pool_stride,
            pool_padding=g.pool_padding,
            stride=g.stride,
            padding=padding,
            groups=self.groups,
            ceil_mode=g.ceil_mode,
            normalize=self.normalize,
            eps=self.eps,
            algorithm=self.algorithm,
            return_positions=return_positions,  # type: ignore[call-overload]
        )

    def filters(self) -> Tensor:
        """Returns the filters, (out_channels, in_channels / groups, W, W), normalised if the layer is."""
        return normalize_filters(self.weight, self.eps) if self.normalize else self.weight

    def extra_repr(self) -> str:
        """The arguments that matter, for ``print(model)``."""
        g = self.geometry
        return self._repr(
            {
                f"pool_stride={g.pool_stride}": g.pool_stride != g.pool,
                f"pool_padding={g.pool_padding}": g.pool_padding != (0, 0),
                f"stride={g.stride}": g.stride != (1, 1),
                f"padding={g.padding}": g.padding != (0, 0),
                "ceil_mode=True": g.ceil_mode,
            }
        )


class WinogradConv2d(nn.Conv2d):
    """``nn.Conv2d`` with fewer multiplications: the same arguments, state dict and, to rounding, results.

    Takes the arguments of ``nn.Conv2d``, then ``algorithm``. See `winograd_conv2d` for what it means, and for the
    rounding error.

    Example:
        >>> WinogradConv2d(192, 256, 3, padding=1)(torch.randn(1, 192, 17, 17)).shape
        torch.Size([1, 256, 17, 17])
    """

    def __init__(self, *args: Any, algorithm: str = "auto", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_algorithm(algorithm)
        self.algorithm = algorithm

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: Size | str = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), 0
        return winograd_conv2d(
            input, weight, bias, self.stride, padding, self.dilation, self.groups, algorithm=self.algorithm
        )

    def extra_repr(self) -> str:
        """Shows the arguments that differ from their defaults."""
        text = super().extra_repr()
        return text if self.algorithm == "auto" else f"{text}, algorithm={self.algorithm!r}"


class NormConv2d(nn.Conv2d):
    """``nn.Conv2d`` whose filters have their mean and contrast normalised (Eq. 3): the paper's "Max-Pool + norm".

    It takes the arguments of ``nn.Conv2d``, and ``eps``, the lambda of Eq. 3. Turn weight decay off for such layers.

    Example:
        >>> NormConv2d(3, 96, 8, stride=2)(torch.randn(1, 3, 220, 220)).shape
        torch.Size([1, 96, 107, 107])
    """

    def __init__(self, *args: Any, eps: float = 0.01, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_eps(eps)
        self.eps = eps

    def filters(self) -> Tensor:
        """Returns the normalised filters, (out_channels, in_channels / groups, W, W)."""
        return normalize_filters(self.weight, self.eps)

    def forward(self, input: Tensor) -> Tensor:
        """Returns the responses of the normalised filters."""
        return self._conv_forward(input, self.filters(), self.bias)

    def extra_repr(self) -> str:
        """The arguments that matter, for ``print(model)``."""
        return f"{super().extra_repr()}, eps={self.eps}"


class MaxoutConv2d(nn.Module):
    """Convolution with maxout (Goodfellow et al. 2013): the maximum over ``pieces`` filters per output channel.

    An epitome of D x D = ``pieces`` filters would be the same if its filters did not overlap. The bias of each piece is
    inside the maximum, as in the maxout paper.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel_size: Size of the filters.
        pieces: Number of filters per output channel.
        stride: Step from one patch of the input to the next.
        padding: Rows and columns added on each side of the input.
        bias: Whether to learn a bias per piece.
        padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        device: Device of the parameters.
        dtype: Data type of the parameters.

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
        self.padding = as_pair("padding", padding, minimum=0)
        self.padding_mode = _padding_mode(padding_mode)
        filters = out_channels * pieces
        self.weight = nn.Parameter(torch.empty(filters, in_channels, *self.kernel_size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(filters, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights and biases as ``nn.Conv2d`` does."""
        _reset(self.weight, self.bias, fan_in=self.in_channels * math.prod(self.kernel_size))

    def forward(self, input: Tensor) -> Tensor:
        """Returns the largest response among each output's pieces, (N, out_channels, oh, ow)."""
        input, padding = _pad(input, self.padding, self.padding_mode)
        responses = F.conv2d(input, self.weight, self.bias, stride=self.stride, padding=padding)
        # max gives the gradient to one piece, as max_pool2d does. amax would divide it among equals, and is slower.
        return responses.unflatten(-3, (self.out_channels, self.pieces)).max(-3).values

    def extra_repr(self) -> str:
        """The arguments that matter, for ``print(model)``."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, pieces={self.pieces}"
        text = f"{text}, stride={self.stride}, padding={self.padding}, bias={self.bias is not None}"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode!r}"


def _check_pair(conv: nn.Module, pool: nn.Module) -> None:
    """Raises an error unless an epitomic layer can start as this convolution + max-pooling."""
    if not isinstance(conv, nn.Conv2d) or not isinstance(pool, nn.MaxPool2d):
        raise TypeError(f"from_conv takes nn.Conv2d and nn.MaxPool2d, got {type(conv).__name__}, {type(pool).__name__}")
    for name, got, fits in (
        ("conv.padding", conv.padding, not isinstance(conv.padding, str)),
        ("conv.dilation", conv.dilation, set(conv.dilation) == {1}),
        ("pool.dilation", pool.dilation, pool.dilation in (1, (1, 1))),
        ("pool.ceil_mode", pool.ceil_mode, not pool.ceil_mode),
        ("pool.return_indices", pool.return_indices, not pool.return_indices),
    ):
        if not fits:
            raise ValueError(f"no epitomic layer starts as this pair: {name} is {got!r}")


def _positive(name: str, value: int) -> int:
    if isinstance(value, Sequence):
        raise TypeError(f"{name} must be an int, got {value!r}")
    return as_pair(name, value)[0]


def _padding_mode(mode: str) -> str:
    if mode not in PADDING_MODES:
        raise ValueError(f"padding_mode must be one of {', '.join(PADDING_MODES)}, got {mode!r}")
    return mode


def _pad(input: Tensor, padding: Pair, mode: str) -> tuple[Tensor, Pair]:
    """Pads by ``mode``. Returns the input and the zero padding that the convolution still has to do."""
    if mode == "zeros":
        return input, padding
    return F.pad(input, (padding[1], padding[1], padding[0], padding[0]), mode=mode), (0, 0)


def _reset(weight: Tensor, bias: Tensor | None, fan_in: int) -> None:
    bound = 1 / math.sqrt(fan_in)
    nn.init.uniform_(weight, -bound, bound)
    if bias is not None:
        nn.init.uniform_(bias, -bound, bound)
