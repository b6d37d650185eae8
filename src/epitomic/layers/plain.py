"""Convolutions without pooling: by Winograd's algorithm, with normalised filters (Eq. 3), and with maxout."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.functional import winograd_conv2d
from epitomic.geometry import Size, as_pair
from epitomic.layers.shared import Matching, check_padding_mode, draw_uniform, positive
from epitomic.ops.choice import check_algorithm
from epitomic.ops.filters import check_eps, normalize_filters

torch.fx.wrap("winograd_conv2d")  # makes it one call in a graph of torch.fx, like F.conv2d


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


def is_normalized(module: nn.Module) -> bool:
    """Whether a layer has mean + contrast normalisation (Eq. 3), which makes the size of its weights irrelevant."""
    return isinstance(module, NormConv2d) or (isinstance(module, Matching) and module.normalize)


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
        self.in_channels = positive("in_channels", in_channels)
        self.out_channels = positive("out_channels", out_channels)
        self.kernel_size = as_pair("kernel_size", kernel_size)
        self.pieces = positive("pieces", pieces)
        self.stride = as_pair("stride", stride)
        self.padding = as_pair("padding", padding, minimum=0)
        self.padding_mode = check_padding_mode(padding_mode)
        filters = out_channels * pieces
        self.weight = nn.Parameter(torch.empty(filters, in_channels, *self.kernel_size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(filters, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights and biases as ``nn.Conv2d`` does."""
        draw_uniform(self.weight, self.bias, fan_in=self.in_channels * math.prod(self.kernel_size))

    def forward(self, input: Tensor) -> Tensor:
        """Returns the largest response among each output's pieces, (N, out_channels, oh, ow)."""
        padding = self.padding
        if self.padding_mode != "zeros":
            (ph, pw), padding = padding, (0, 0)
            input = F.pad(input, (pw, pw, ph, ph), mode=self.padding_mode)
        responses = F.conv2d(input, self.weight, self.bias, stride=self.stride, padding=padding)
        # max gives the gradient to one piece, as max_pool2d does. amax would divide it among equals, and is slower.
        return responses.unflatten(-3, (self.out_channels, self.pieces)).max(-3).values

    def extra_repr(self) -> str:
        """The arguments that matter, for ``print(model)``."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, pieces={self.pieces}"
        text = f"{text}, stride={self.stride}, padding={self.padding}, bias={self.bias is not None}"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode!r}"
