"""What the layers that take maxima share: parameters, padding, and the call with or without positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.geometry import Geometry, Pair, PoolGeometry, as_pair
from epitomic.ops.choice import check_algorithm
from epitomic.ops.filters import check_eps

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class Matching(nn.Module):
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
        self.in_channels = positive("in_channels", in_channels)
        self.out_channels = positive("out_channels", out_channels)
        self.groups = positive("groups", groups)
        self.geometry = geometry
        if normalize:
            check_eps(eps)
        check_algorithm(algorithm)
        self.normalize = normalize
        self.eps = eps
        self.padding_mode = check_padding_mode(padding_mode)
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
        draw_uniform(self.weight, self.bias, fan_in=self.weight.shape[1] * math.prod(self.geometry.kernel))

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


def positive(name: str, value: int) -> int:
    """Returns ``value``, or raises an error that names it unless it is an int of at least 1."""
    if isinstance(value, Sequence):
        raise TypeError(f"{name} must be an int, got {value!r}")
    return as_pair(name, value)[0]


def check_padding_mode(mode: str) -> str:
    """Returns ``mode``, or raises an error that lists the modes."""
    if mode not in PADDING_MODES:
        raise ValueError(f"padding_mode must be one of {', '.join(PADDING_MODES)}, got {mode!r}")
    return mode


def pad(input: Tensor, padding: Pair, mode: str) -> tuple[Tensor, Pair]:
    """Pads by ``mode``. Returns the input and the zero padding that the convolution still has to do."""
    if mode == "zeros":
        return input, padding
    return F.pad(input, (padding[1], padding[1], padding[0], padding[0]), mode=mode), (0, 0)


def draw_uniform(weight: Tensor, bias: Tensor | None, fan_in: int) -> None:
    """Draws weights and biases between -1 and 1 divided by the root of the fan-in, as ``nn.Conv2d`` does."""
    bound = 1 / math.sqrt(fan_in)
    nn.init.uniform_(weight, -bound, bound)
    if bias is not None:
        nn.init.uniform_(bias, -bound, bound)
