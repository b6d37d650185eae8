"""`EpitomicConv2d`: the layer of the paper (Eq. 2 and 3)."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.functional import epitomic_conv2d
from epitomic.geometry import Geometry, Size, as_pair
from epitomic.layers.shared import Matching, pad, positive
from epitomic.ops.filters import gather_filters, normalize_filters

torch.fx.wrap("epitomic_conv2d")  # makes it one call in a graph of torch.fx, like F.conv2d


class EpitomicConv2d(Matching):
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
        input, padding = pad(input, g.padding, self.padding_mode)
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
