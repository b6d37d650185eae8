"""What is timed: an epitomic layer, the convolution + max-pooling that it replaces, and our fused pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.functional import epitomic_conv2d, max_pool_conv2d
from epitomic.geometry import Geometry
from epitomic.support.devices import CPU

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
PAIR = "conv2d + max_pool2d"  # torch's own two calls
FUSED = "max_pool_conv2d"  # the same function by our kernel


@dataclass(frozen=True)
class Case:
    """One layer and its input; all sizes are square."""

    name: str  # name in tables
    in_channels: int
    out_channels: int  # number of epitomes
    kernel: int  # W, size of a filter
    pool: int  # D, positions under one maximum, per axis
    stride: int  # step from one patch of the input to the next
    size: int  # height and width of the images
    batch: int  # number of images
    epitome_stride: int = 1  # step from one filter of an epitome to the next
    first: bool = False  # whether it is a network's first layer, whose input needs no gradient

    @property
    def arguments(self) -> dict[str, int]:
        """Sizes as `epitomic_conv2d` takes them."""
        sizes = {"kernel_size": self.kernel, "pool_size": self.pool, "stride": self.stride}
        return {**sizes, "epitome_stride": self.epitome_stride}

    @property
    def geometry(self) -> Geometry:
        """All sizes of the layer."""
        return Geometry.create(**self.arguments, padding=0, epitome_size=None)

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the output."""
        return self.geometry.output_size(self.size, self.size)

    def text(self) -> str:
        """Returns the sizes in one line."""
        step = f" e {self.epitome_stride}" if self.epitome_stride > 1 else ""
        layer = f"{self.in_channels}->{self.out_channels} W {self.kernel} D {self.pool}{step}"
        return f"{layer}, {self.size} px, batch {self.batch}"

    def winograd_flops(self) -> int:
        """Returns the operations of a Winograd forward pass: 2 e^2 (W/e + D - 1)^2 per patch, channel and epitome."""
        points, blocks = self.geometry.points, self.epitome_stride**2
        patches = self.batch * self.output[0] * self.output[1]
        return 2 * points[0] * points[1] * patches * self.in_channels * blocks * self.out_channels

    def scaled(self, *, batch: int | None = None, size: int | None = None) -> Case:
        """Returns the same layer on other input."""
        return replace(self, batch=batch or self.batch, size=size or self.size)


CASES = {
    case.name: case
    for case in (
        Case("paper layer 1", 3, 96, 8, 3, 4, size=220, batch=16, epitome_stride=2, first=True),
        Case("paper layer 2", 96, 192, 6, 3, 3, size=54, batch=16),
        Case("paper layer 6", 512, 512, 3, 3, 3, size=17, batch=32),
        Case("3x3, pool 2", 96, 192, 3, 2, 2, size=32, batch=64),
        Case("5x5, pool 2", 96, 96, 5, 2, 2, size=32, batch=64),
        Case("4x4, pool 2", 48, 96, 4, 2, 2, size=16, batch=128),
        # The layers of the paper's Max-Pool network that take maxima (Table 1).
        Case("max-pool layer 1", 3, 96, 8, 3, 6, size=220, batch=16, epitome_stride=2, first=True),
        Case("max-pool layer 2", 96, 192, 6, 2, 2, size=36, batch=32),
        Case("max-pool layer 6", 512, 512, 3, 3, 3, size=16, batch=32),
    )
}


@dataclass(frozen=True)
class Contestant:
    """A way to compute a layer."""

    what: str  # an algorithm of our epitomic layer, `PAIR` or `FUSED`
    format: str  # memory format of the tensors, a key of `FORMATS`
    normalize: bool = False  # whether the epitomes are normalised (Eq. 3)
    compiled: bool = False  # whether ``torch.compile`` has the call
    dtype: str = "float32"  # dtype of all tensors


@dataclass
class Entry:
    """A contestant that is ready to run a case."""

    inputs: list[Tensor]  # tensors that need gradients
    dy: Tensor  # gradient of the output
    forward: Callable[[], Tensor]

    def inference(self) -> None:
        """Runs one forward pass without gradients."""
        with torch.no_grad():
            self.forward()

    def training(self) -> None:
        """Runs one forward and one backward pass."""
        torch.autograd.grad(self.forward(), self.inputs, self.dy)


def enter(case: Case, contestant: Contestant, device: torch.device = CPU) -> Entry:
    """Makes a contestant's tensors on a device and the function that runs it, but does not run it."""
    layout = FORMATS[contestant.format]
    generator = torch.Generator().manual_seed(0)

    dtype = getattr(torch, contestant.dtype)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    x = normal(case.batch, case.in_channels, case.size, case.size).contiguous(memory_format=layout)
    x.requires_grad_(not case.first)
    dy = normal(case.batch, case.out_channels, *case.output).contiguous(memory_format=layout)
    bias = torch.zeros(case.out_channels, dtype=dtype, device=device, requires_grad=True)
    pair = contestant.what in (PAIR, FUSED)
    filters = (case.kernel, case.kernel) if pair else case.geometry.epitome
    weight = normal(case.out_channels, case.in_channels, *filters) / (case.in_channels * case.kernel**2) ** 0.5
    weight = (weight.contiguous(memory_format=layout) if pair else weight).requires_grad_()

    forward: Callable[[], Tensor]
    if contestant.what == PAIR:
        call = torch.compile(_pair, dynamic=False) if contestant.compiled else _pair
        forward = partial(call, x, weight, bias, **pooling(case))
    elif contestant.what == FUSED:
        forward = partial(max_pool_conv2d, x, weight, bias, **pooling(case))
    else:
        ours = {"normalize": contestant.normalize, "algorithm": contestant.what}
        forward = partial(epitomic_conv2d, x, weight, bias, **case.arguments, **ours)
    return Entry([t for t in (x, weight, bias) if t.requires_grad], dy, forward)


def pooling(case: Case) -> dict[str, Any]:
    """Returns the pair's sizes as `max_pool_conv2d` takes them: a convolution with our epitome stride, then pooling.

    We try pooling without padding, then ``ceil_mode``, then padding 1, then both. The first one that gives our output
    size computes least.
    """
    step = case.epitome_stride
    dense = (case.size - case.kernel) // step + 1
    stride = case.stride // step
    for padding, ceil_mode in ((0, False), (0, True), (1, False), (1, True)):
        span = dense + 2 * padding - case.pool
        if (-(-span // stride) if ceil_mode else span // stride) + 1 == case.output[0]:
            pools = {"pool_size": case.pool, "pool_stride": stride, "pool_padding": padding}
            return {"stride": step, "ceil_mode": ceil_mode, **pools}
    raise ValueError(f"no max-pooling after a convolution of stride {step} gives the output size of {case.text()}")


def _pair(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: int,
    pool_size: int,
    pool_stride: int,
    pool_padding: int,
    ceil_mode: bool,
) -> Tensor:
    responses = F.conv2d(x, weight, bias, stride=stride)
    return F.max_pool2d(responses, pool_size, pool_stride, padding=pool_padding, ceil_mode=ceil_mode)
