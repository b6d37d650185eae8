"""What the layers that take maxima share: parameters, padding, and the call with or without positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.functional_1d import as_rows, from_rows
from epitomic.geometry import Geometry, Pair, PoolGeometry, Size, as_pair
from epitomic.ops.choice import check_algorithm
from epitomic.ops.filters import check_eps
from epitomic.ops.inputs import resolve_padding

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class Matching(nn.Module):
    """A layer that keeps maxima, over images (2 ``dims``) or over sequences (1), which are images of one row."""

    dims: ClassVar[int] = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        geometry: Geometry | PoolGeometry,
        weight_size: Pair,
        *,
        padding: Size | str,
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
        given = padding if isinstance(padding, str) else self.pair("padding", padding, minimum=0)
        self.around = resolve_padding(given, geometry.kernel, geometry.stride, (1, 1))  # left, right, top, bottom
        self.geometry = replace(geometry, padding=(self.around[2], self.around[0]))
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
        shape = (out_channels // outputs, in_channels // groups, *weight_size[-self.dims :])
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None

    @classmethod
    def pair(cls, name: str, value: object, *, minimum: int = 1) -> Pair:
        """Reads a size: an int or a pair of ints for images, an int for sequences."""
        if cls.dims == 2:
            return as_pair(name, value, minimum=minimum)
        if isinstance(value, Sequence) and len(value) == 1:
            (value,) = value
        if isinstance(value, Sequence):
            raise TypeError(f"{name} must be an int, got {value!r}")
        return minimum and 1, as_pair(name, value, minimum=minimum)[1]

    @property
    def kernel_size(self) -> tuple[int, ...]:
        """W, height and width."""
        return self.geometry.kernel[-self.dims :]

    @property
    def pool_size(self) -> tuple[int, ...]:
        """D, height and width."""
        return self.geometry.pool[-self.dims :]

    @property
    def stride(self) -> tuple[int, ...]:
        """Step from one patch of the input to the next."""
        return self.geometry.stride[-self.dims :]

    @property
    def padding(self) -> tuple[int, ...]:
        """Rows and columns of padding before the input. ``around`` has those on all sides."""
        return self.geometry.padding[-self.dims :]

    def reset_parameters(self) -> None:
        """Draws weights and biases as ``nn.Conv2d`` does: uniformly, with the fan-in W*W*C of a filter."""
        draw_uniform(self.weight, self.bias, fan_in=self.weight.shape[1] * math.prod(self.geometry.kernel))

    def forward(self, input: Tensor) -> Tensor:
        """Returns the responses of the best matches, (N, out_channels, oh, ow), or (N, out_channels, ol)."""
        return self._match(input, return_positions=False)

    def match(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the responses, and where each maximum was: its position in the D x D window, row-major."""
        return self._match(input, return_positions=True)

    def _match(self, input: Tensor, return_positions: bool) -> Any:
        if self.dims == 2:
            return self._match_images(*self._padded(input), self.weight, return_positions)
        rows = as_rows("input", input)
        result = self._match_images(*self._padded(rows), self.weight.unsqueeze(-2), return_positions)
        return from_rows(result)

    def _match_images(self, input: Tensor, padding: Pair, weight: Tensor, return_positions: bool) -> Any:
        raise NotImplementedError

    def _padded(self, input: Tensor) -> tuple[Tensor, Pair]:
        """Pads by the layer's mode. Returns the input and the even padding with zeros that is left to do."""
        left, right, top, bottom = self.around
        zeros = self.padding_mode == "zeros"
        if zeros and (left, top) == (right, bottom):
            return input, (top, left)
        return F.pad(input, self.around, mode="constant" if zeros else self.padding_mode), (0, 0)

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

    def _shown_padding(self) -> str:
        """The padding as `_repr` shows it; what was given as ``"same"`` may differ between the sides."""
        left, right, top, bottom = self.around
        return f"padding={self.padding}" if (left, top) == (right, bottom) else "padding='same'"


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


def draw_uniform(weight: Tensor, bias: Tensor | None, fan_in: int) -> None:
    """Draws weights and biases between -1 and 1 divided by the root of the fan-in, as ``nn.Conv2d`` does."""
    bound = 1 / math.sqrt(fan_in)
    nn.init.uniform_(weight, -bound, bound)
    if bias is not None:
        nn.init.uniform_(bias, -bound, bound)
