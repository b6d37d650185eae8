"""`EpitomicConv2d`, the layer of the paper (Eq. 2 and 3), and the same over sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.functional import epitomic_conv2d
from epitomic.geometry import Geometry, Pair, Size
from epitomic.layers.shared import Matching, draw_uniform, positive
from epitomic.ops.filters import gather_filters, normalize_filters

torch.fx.wrap("epitomic_conv2d")  # makes it one call in a graph of torch.fx, like F.conv2d


INITS = ("uniform", "maxpool")


class Epitomic(Matching):
    """Eq. 2 and 3, over images or sequences."""

    geometry: Geometry

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        *,
        pool_size: Size = 2,
        stride: Size | None = None,
        padding: Size | str = 0,
        epitome_size: Size | None = None,
        epitome_stride: Size = 1,
        groups: int = 1,
        normalize: bool = False,
        eps: float = 0.01,
        bias: bool = True,
        padding_mode: str = "zeros",
        init: str = "uniform",
        algorithm: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        geometry = Geometry.create(
            kernel_size=self.pair("kernel_size", kernel_size),
            pool_size=self.pair("pool_size", pool_size),
            stride=None if stride is None else self.pair("stride", stride),
            padding=0,
            epitome_size=None if epitome_size is None else self.pair("epitome_size", epitome_size),
            epitome_stride=self.pair("epitome_stride", epitome_stride),
        )
        per_epitome = math.prod(geometry.outputs)
        if positive("out_channels", out_channels) % per_epitome:
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
            padding=padding,
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
        self.init = init
        _check_init(init, geometry)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws weights and biases as ``nn.Conv2d`` does: uniformly, with the fan-in of a filter (``init``)."""
        if self.init == "uniform":
            return super().reset_parameters()
        inner, border = _inner_filter(self.geometry)
        self.weight.zero_()
        middle: Tensor = self.weight
        for axis, size, before in zip((-2, -1), inner, border, strict=True):
            if size < self.geometry.epitome[axis]:
                middle = middle.narrow(axis, before, size)
        draw_uniform(middle, self.bias, fan_in=self.weight.shape[1] * math.prod(inner))

    @classmethod
    @torch.no_grad()
    def from_conv(
        cls,
        conv: nn.Conv1d | nn.Conv2d,
        pool: nn.MaxPool1d | nn.MaxPool2d,
        *,
        weights: tuple[Tensor, Tensor | None] | None = None,
        algorithm: str = "auto",
    ) -> Self:
        """The epitomic layer that starts as convolution + max-pooling.

        Each epitome holds the filter in its middle, with a border of zeros as wide as the pooling can shift it. The
        layer computes what the pair computes, and can learn beyond it. If the pooling has padding, the two differ at
        the borders: the pair ignores what lies outside, and the layer sees zeros there.

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
        cls._check_pair(conv, pool)
        filters, bias = weights or (conv.weight, conv.bias)
        step, padding = cls._axes(conv.stride), cls._axes(conv.padding)
        pools, pool_stride, outside = cls._axes(pool.kernel_size), cls._axes(pool.stride), cls._axes(pool.padding)
        border = [(d - 1) * s for d, s in zip(pools, step, strict=True)]
        layer = cls(
            conv.in_channels,
            conv.out_channels,
            [w + b for w, b in zip(conv.kernel_size, border, strict=True)],
            pool_size=pools,
            stride=[d * s for d, s in zip(pool_stride, step, strict=True)],
            padding=[p + o * s for p, o, s in zip(padding, outside, step, strict=True)],
            epitome_stride=step,
            groups=conv.groups,
            bias=bias is not None,
            padding_mode=conv.padding_mode,
            algorithm=algorithm,
            device=conv.weight.device,
            dtype=conv.weight.dtype,
        )
        layer.weight.copy_(F.pad(filters, [b for size in reversed(border) for b in (size, size)]))
        if layer.bias is not None and bias is not None:
            layer.bias.copy_(bias)
        return layer

    @classmethod
    def _axes(cls, size: Any) -> tuple[int, ...]:
        """Returns a size of torch's layers as one int per axis."""
        return tuple(size) if isinstance(size, Sequence) else (size,) * cls.dims

    @classmethod
    def _check_pair(cls, conv: nn.Module, pool: nn.Module) -> None:
        """Raises an error unless an epitomic layer can start as this convolution + max-pooling."""
        takes: Any = (nn.Conv2d, nn.MaxPool2d) if cls.dims == 2 else (nn.Conv1d, nn.MaxPool1d)
        if not isinstance(conv, takes[0]) or not isinstance(pool, takes[1]):
            names = " and ".join(f"nn.{kind.__name__}" for kind in takes)
            raise TypeError(f"from_conv takes {names}, got {type(conv).__name__}, {type(pool).__name__}")
        for name, got, fits in (
            ("conv.padding", conv.padding, not isinstance(conv.padding, str)),
            ("conv.dilation", conv.dilation, set(conv.dilation) == {1}),
            ("pool.dilation", pool.dilation, set(cls._axes(pool.dilation)) == {1}),
            ("pool.ceil_mode", pool.ceil_mode, not pool.ceil_mode),
            ("pool.return_indices", pool.return_indices, not pool.return_indices),
        ):
            if not fits:
                raise ValueError(f"no epitomic layer starts as this pair: {name} is {got!r}")

    def _match_images(self, input: Tensor, padding: Pair, weight: Tensor, return_positions: bool) -> Any:
        g = self.geometry
        return epitomic_conv2d(
            input,
            weight,
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
        weight = self.weight if self.dims == 2 else self.weight.unsqueeze(-2)
        filters = gather_filters(weight, self.geometry)
        filters = normalize_filters(filters, self.eps) if self.normalize else filters
        return filters if self.dims == 2 else filters.squeeze(-2)

    def extra_repr(self) -> str:
        """The arguments that matter, for ``print(model)``."""
        g = self.geometry
        return self._repr(
            {
                f"stride={self.stride}": True,
                self._shown_padding(): self.around != (0, 0, 0, 0),
                f"epitome_size={g.epitome[-self.dims :]}": g.epitome != g.mini,
                f"epitome_stride={g.epitome_stride[-self.dims :]}": g.epitome_stride != (1, 1),
            }
        )


class EpitomicConv2d(Epitomic):
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
        padding: Rows and columns added on each side of the input, ``"same"`` (with a stride of 1) or ``"valid"``.
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
        init: ``"uniform"`` draws all weights as ``nn.Conv2d`` does. ``"maxpool"`` makes the layer start as
            convolution + max-pooling. Only the middle of each epitome is drawn, a filter of
            ``kernel_size - (pool_size - 1) * epitome_stride``, and its border is zero.
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


class EpitomicConv1d(Epitomic):
    """Epitomic convolution of sequences: one layer in place of ``nn.Conv1d`` + ``nn.MaxPool1d``.

    It takes the arguments of `EpitomicConv2d`, with an int for each size, and runs in the same kernel.

    Attributes:
        weight: The epitomes, (epitomes, in_channels / groups, V).
        bias: The biases, (out_channels,), or None.
        geometry: All sizes of the layer as those of images of one row.

    Example:
        >>> EpitomicConv1d(1, 32, 9, pool_size=4)(torch.randn(8, 1, 1000)).shape
        torch.Size([8, 32, 248])
    """

    dims = 1


def _inner_filter(geometry: Geometry) -> tuple[Pair, Pair]:
    """The filters of the convolution that a layer with ``init="maxpool"`` starts as, and the zeros before them."""
    border = tuple((d - 1) * e for d, e in zip(geometry.pool, geometry.epitome_stride, strict=True))
    inner = tuple(w - b for w, b in zip(geometry.kernel, border, strict=True))
    return (inner[0], inner[1]), (border[0], border[1])


def _check_init(init: str, geometry: Geometry) -> None:
    """Raises an error unless a layer of these sizes can start that way."""
    if init not in INITS:
        raise ValueError(f"init must be one of {', '.join(INITS)}, got {init!r}")
    if init == "uniform":
        return
    inner, border = _inner_filter(geometry)
    if geometry.epitome != geometry.mini:
        raise ValueError(f"init='maxpool' needs mini-epitomes, epitome_size={geometry.mini}, got {geometry.epitome}")
    if min(inner) < 1:
        needed = (border[0] + 1, border[1] + 1)
        raise ValueError(
            f"init='maxpool' needs a kernel_size of at least {needed} for pool_size={geometry.pool}, "
            f"got {geometry.kernel}"
        )
