"""`MaxPoolConv2d`, convolution and max-pooling in one layer (Eq. 1), and the same over sequences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from epitomic.functional import max_pool_conv2d
from epitomic.geometry import Pair, PoolGeometry, Size
from epitomic.layers.shared import Matching
from epitomic.ops.filters import normalize_filters

torch.fx.wrap("max_pool_conv2d")  # makes it one call in a graph of torch.fx, like F.conv2d


class MaxPooled(Matching):
    """Eq. 1, over images or sequences."""

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
        padding: Size | str = 0,
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
            kernel_size=self.pair("kernel_size", kernel_size),
            stride=self.pair("stride", stride),
            padding=0,
            pool_size=self.pair("pool_size", pool_size),
            pool_stride=None if pool_stride is None else self.pair("pool_stride", pool_stride),
            pool_padding=self.pair("pool_padding", pool_padding, minimum=0),
            ceil_mode=ceil_mode,
        )
        super().__init__(
            in_channels,
            out_channels,
            geometry,
            geometry.kernel,
            padding=padding,
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
        self.reset_parameters()

    def _match_images(self, input: Tensor, padding: Pair, weight: Tensor, return_positions: bool) -> Any:
        g = self.geometry
        return max_pool_conv2d(
            input,
            weight,
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
        if not self.normalize:
            return self.weight
        filters = self.weight if self.dims == 2 else self.weight.unsqueeze(-2)
        filters = normalize_filters(filters, self.eps)
        return filters if self.dims == 2 else filters.squeeze(-2)

    def extra_repr(self) -> str:
        """The arguments that matter, for ``print(model)``."""
        g = self.geometry
        return self._repr(
            {
                f"pool_stride={g.pool_stride[-self.dims :]}": g.pool_stride != g.pool,
                f"pool_padding={g.pool_padding[-self.dims :]}": g.pool_padding != (0, 0),
                f"stride={self.stride}": g.stride != (1, 1),
                self._shown_padding(): self.around != (0, 0, 0, 0),
                "ceil_mode=True": g.ceil_mode,
            }
        )


class MaxPoolConv2d(MaxPooled):
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
        padding: Rows and columns added on each side of the input, ``"same"`` (with a stride of 1) or ``"valid"``.
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


class MaxPoolConv1d(MaxPooled):
    """Convolution and max-pooling of sequences in one layer: what ``nn.Conv1d`` + ``nn.MaxPool1d`` compute, faster.

    It takes the arguments of `MaxPoolConv2d`, with an int for each size. The state dict of an ``nn.Conv1d`` loads as it
    is.

    Attributes:
        weight: The filters, (out_channels, in_channels / groups, W).
        bias: The biases, (out_channels,), or None.
        geometry: All sizes of the layer as those of images of one row.

    Example:
        >>> MaxPoolConv1d(1, 32, 9, pool_size=4)(torch.randn(8, 1, 1000)).shape
        torch.Size([8, 32, 248])
    """

    dims = 1
