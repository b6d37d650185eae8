"""What is timed: an epitomic layer, and the convolution + max-pooling that it replaces, at equal output size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.functional import epitomic_conv2d
from epitomic.geometry import Geometry

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
PAIR = "conv2d + max_pool2d"


@dataclass(frozen=True)
class Case:
    """One layer. Sizes as in `EpitomicConv2d`; square images of ``size`` pixels."""

    name: str
    in_channels: int
    out_channels: int
    kernel: int
    pool: int
    stride: int
    size: int
    batch: int
    epitome_stride: int = 1
    first: bool = False  # a network's first layer, whose input needs no gradient

    @property
    def geometry(self) -> Geometry:
        """The sizes, resolved."""
        return Geometry.create(
            kernel_size=self.kernel,
            pool_size=self.pool,
            stride=self.stride,
            padding=0,
            epitome_size=None,
            epitome_stride=self.epitome_stride,
        )

    @property
    def output(self) -> tuple[int, int]:
        """Output height and width."""
        return self.geometry.output_size(self.size, self.size)

    def text(self) -> str:
        """The sizes in a line."""
        step = f" e {self.epitome_stride}" if self.epitome_stride > 1 else ""
        layer = f"{self.in_channels}->{self.out_channels} W {self.kernel} D {self.pool}{step}"
        return f"{layer}, {self.size} px, batch {self.batch}"

    def winograd_flops(self) -> int:
        """Floating-point operations of the Winograd multiplications, forward: 2 V^2 per patch, channel and epitome."""
        points, blocks = self.geometry.points, self.epitome_stride**2
        patches = self.batch * self.output[0] * self.output[1]
        return 2 * points[0] * points[1] * patches * self.in_channels * blocks * self.out_channels

    def scaled(self, *, batch: int | None = None, size: int | None = None) -> Case:
        """The same layer on other input."""
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
    )
}


@dataclass(frozen=True)
class Contestant:
    """A way to compute a layer: the pair, or an algorithm of ours, in a memory format."""

    what: str  # PAIR or an algorithm
    format: str
    normalize: bool = False


@dataclass
class Entry:
    """A contestant ready to run a case."""

    inputs: list[Tensor]  # those that want gradients
    dy: Tensor
    forward: Callable[[], Tensor]

    def inference(self) -> None:
        """One forward pass without gradients."""
        with torch.no_grad():
            self.forward()

    def training(self) -> None:
        """One forward and backward pass."""
        torch.autograd.grad(self.forward(), self.inputs, self.dy)


def enter(case: Case, contestant: Contestant) -> Entry:
    """Makes the tensors of a contestant and the function that runs it; runs nothing."""
    layout = FORMATS[contestant.format]
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).contiguous(memory_format=layout)

    x = normal(case.batch, case.in_channels, case.size, case.size).requires_grad_(not case.first)
    dy = normal(case.batch, case.out_channels, *case.output)
    bias = torch.zeros(case.out_channels, requires_grad=True)
    pair = contestant.what == PAIR
    filters = (case.kernel, case.kernel) if pair else case.geometry.epitome
    weight = torch.randn(case.out_channels, case.in_channels, *filters, generator=generator)
    weight /= (case.in_channels * case.kernel**2) ** 0.5
    if pair:
        weight = weight.contiguous(memory_format=layout)
    weight.requires_grad_()

    if pair:
        forward = _pair(case, x, weight, bias)
    else:

        def forward() -> Tensor:
            return epitomic_conv2d(
                x,
                weight,
                bias,
                kernel_size=case.kernel,
                pool_size=case.pool,
                stride=case.stride,
                epitome_stride=case.epitome_stride,
                normalize=contestant.normalize,
                algorithm=contestant.what,
            )

    return Entry([t for t in (x, weight, bias) if t.requires_grad], dy, forward)


def _pair(case: Case, x: Tensor, weight: Tensor, bias: Tensor) -> Callable[[], Tensor]:
    """The pair on the same input: dense convolution with our epitome stride, then the maximum over D x D responses.

    Of the ways to reach our output size, the one that computes least: borders cut (ceil_mode), else one row of padding
    in the pooling.
    """
    step = case.epitome_stride
    dense = (case.size - case.kernel) // step + 1
    stride = case.stride // step
    for padding, ceil_mode in ((0, False), (0, True), (1, False), (1, True)):
        span = dense + 2 * padding - case.pool
        if (-(-span // stride) if ceil_mode else span // stride) + 1 == case.output[0]:
            return lambda: F.max_pool2d(
                F.conv2d(x, weight, bias, stride=step), case.pool, stride, padding=padding, ceil_mode=ceil_mode
            )
    raise ValueError(f"no max-pooling after a convolution of stride {step} gives the output size of {case.text()}")
