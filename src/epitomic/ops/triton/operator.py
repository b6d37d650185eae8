"""The kernel in Triton as torch operators. ``torch.compile`` and ``torch.export`` look inside them.

Importing this module imports Triton. `matching.match` does so when the first call comes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epitomic.ops.matching import Kernel, register_gradient
from epitomic.ops.operands import Grid, Operands, is_channels_last
from epitomic.ops.triton import fused, winograd

KERNELS: dict[str, Kernel] = {"triton": fused, "triton_winograd": winograd}


def match_triton(
    x: Tensor, weights: Tensor, bias: Tensor | None, gain: Tensor | None, grid: Grid, implementation: str
) -> tuple[Tensor, Tensor]:
    """Matches (N, C, H, W) input: responses and positions, (N, K, oh, ow), in the memory format of ``x``."""
    pixels, filters = x.permute(0, 2, 3, 1).contiguous(), weights.contiguous()
    dense = None if bias is None else bias.contiguous()  # the kernels know no strides
    y, positions = match_operator(pixels, filters, dense, gain, grid.numbers(), implementation)
    y, positions = y.permute(0, 3, 1, 2), positions.permute(0, 3, 1, 2)
    return (y, positions) if is_channels_last(x) else (y.contiguous(), positions)


@torch.library.triton_op("epitomic::match_triton", mutates_args=())
def match_operator(
    x: Tensor, weights: Tensor, bias: Tensor | None, gain: Tensor | None, grid: Sequence[int], implementation: str
) -> tuple[Tensor, Tensor]:
    """Matches dense (N, H, W, C) input: responses and positions, (N, oh, ow, K)."""
    return KERNELS[implementation].forward(Operands(x, weights, bias, gain, Grid.of_numbers(grid)))


@torch.library.triton_op("epitomic::match_triton_backward", mutates_args=())
def match_backward(
    dy: Tensor,
    y: Tensor | None,
    positions: Tensor,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    gain: Tensor | None,
    grid: Sequence[int],
    needs: Sequence[bool],
    implementation: str,
) -> list[Tensor]:
    """Returns the gradients of x, weights, bias and gain. Those that ``needs`` does not ask for are empty."""
    operands = Operands(x, weights, bias, gain, Grid.of_numbers(grid))
    gradients = KERNELS[implementation].backward(dy.contiguous(), y, positions, operands, needs)
    like = (x, weights, bias, gain)
    return [
        x.new_empty(0) if g is None or t is None or not need else g.to(t.dtype).contiguous()
        for g, t, need in zip(gradients, like, needs, strict=True)
    ]


register_gradient(match_operator, match_backward)
