"""The one kernel, as a torch operator: patches of the input matched with weights.

Every epitomic layer of the paper reduces to it (`reductions`). With p in the D x D window, it computes Eq. 3:

    y[n, k, i] = max_p gain[k, p] * (x_i - mean(x_i))^T w_{k,p} + bias[k]

Without ``gain``, it computes Eq. 2: the patches are not centred, and the gain is one. The patches x_i have W x W
pixels, and the weights are mini-epitomes of V x V. Convolution followed by max-pooling, Eq. 1, is the dual. There the
patches have V x V pixels, and the weights are filters of W x W that take the D x D positions p in each patch:

    y[n, k, i] = max_p x_{i,p}^T w_k + bias[k]

With ``Grid.keep_all``, the kernel returns all these responses. That is a plain convolution, D x D outputs at a time.

This file connects torch and the implementations: it has the operator's schema, fake kernels, autograd and memory
formats. A new implementation needs the two functions of `Kernel` and a line in `KERNELS`. Those in Triton have
operators of their own (`triton.operator`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from epitomic.ops import native, winograd
from epitomic.ops.operands import Gradients, Grid, Operands, is_channels_last
from epitomic.ops.triton.served import TRITON


class Kernel(Protocol):
    """The two functions of an implementation of the kernel."""

    def forward(self, operands: Operands) -> tuple[Tensor, Tensor]:
        """Matches every patch with all weights.

        Returns:
            The responses, (N, oh, ow, K), and the winning positions of the same shape: uint8, row-major in the D x D
            window, the lowest among equals. The positions are empty if all responses are kept.
        """

    def backward(
        self, dy: Tensor, y: Tensor | None, positions: Tensor, operands: Operands, needs: Sequence[bool]
    ) -> Gradients:
        """Returns the gradients of x, weights, bias and gain, or None for those that ``needs`` does not ask for.

        ``y`` is given only with gain. If x is a view of dense (N, C, H, W) data, its gradient may be one, too.
        """


KERNELS: dict[str, Kernel] = {"native": native, "winograd": winograd}


def match(
    x: Tensor, weights: Tensor, bias: Tensor | None, gain: Tensor | None, grid: Grid, implementation: str
) -> tuple[Tensor, Tensor]:
    """Matches (N, C, H, W) input: responses and positions, (N, K, oh, ow), in the memory format of ``x``."""
    if implementation in TRITON:
        from epitomic.ops.triton.operator import match_triton  # imports Triton

        return match_triton(x, weights, bias, gain, grid, implementation)
    y, positions = match_operator(x, weights, bias, gain, grid.numbers(), implementation)
    return y, positions


@torch.library.custom_op("epitomic::match", mutates_args=())
def match_operator(
    x: Tensor, weights: Tensor, bias: Tensor | None, gain: Tensor | None, grid: Sequence[int], implementation: str
) -> tuple[Tensor, Tensor]:
    """The operator behind `match`. It takes the grid as numbers."""
    y, positions = KERNELS[implementation].forward(_operands(x, weights, bias, gain, grid))
    return _own(_to_format_of(x, y)), _own(_to_format_of(x, positions))


@match_operator.register_fake
def _(
    x: Tensor, weights: Tensor, bias: Tensor | None, gain: Tensor | None, grid: Sequence[int], implementation: str
) -> tuple[Tensor, Tensor]:
    operands = Operands(x, weights, bias, gain, Grid.of_numbers(grid))
    positions = x.new_empty(operands.winners, dtype=torch.uint8)
    return _to_format_of(x, x.new_empty(operands.output)), _to_format_of(x, positions)


@torch.library.custom_op("epitomic::match_backward", mutates_args=())
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

    def nhwc(t: Tensor) -> Tensor:
        return t.permute(0, 2, 3, 1).contiguous()

    operands = _operands(x, weights, bias, gain, grid)
    saved = None if y is None else nhwc(y)
    dx, dweights, *rest = KERNELS[implementation].backward(nhwc(dy), saved, nhwc(positions), operands, needs)
    dx = None if dx is None else _to_format_of(x, dx)
    dweights = None if dweights is None else dweights.contiguous(memory_format=_format_of(weights))
    return [x.new_empty(0) if g is None else g for g in (dx, dweights, *rest)]


@match_backward.register_fake
def _(
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
    def like(t: Tensor | None, need: bool, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
        return x.new_empty(0) if t is None or not need else torch.empty_like(t, memory_format=memory_format)

    dx = _to_format_of(x, x.new_empty(x.permute(0, 2, 3, 1).shape)) if needs[0] else x.new_empty(0)
    return [dx, like(weights, needs[1], _format_of(weights)), like(bias, needs[2]), like(gain, needs[3])]


def register_gradient(forward: Any, backward: Any) -> None:
    """Makes ``backward`` the gradient of ``forward``: two operators with the arguments of those above."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, weights, bias, gain, ctx.grid, ctx.implementation = inputs
        y, positions = output
        ctx.mark_non_differentiable(positions)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weights, bias, gain, positions, y if gain is not None else None)

    def gradient(ctx: Any, dy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if dy is None:
            return (None,) * 6
        x, weights, bias, gain, positions, y = ctx.saved_tensors
        needs = ctx.needs_input_grad[:4]
        grads = backward(dy, y, positions, x, weights, bias, gain, ctx.grid, needs, ctx.implementation)
        return (*(g if need else None for g, need in zip(grads, needs, strict=True)), None, None)

    def no_double_backward(ctx: Any, *_: Any) -> None:
        instead = "use algorithm='direct' (or 'reference')"
        raise RuntimeError(f"there is no double backward in the fast algorithms: {instead}")

    forward.register_autograd(gradient, setup_context=setup_context)
    backward.register_autograd(no_double_backward)


register_gradient(match_operator, match_backward)


def _own(view: Tensor) -> Tensor:
    """Returns the same data as a tensor that is no view, as autograd forbids to change a view from here in place."""
    return view.new_empty(0).set_(view.untyped_storage(), view.storage_offset(), view.shape, view.stride())


def _format_of(t: Tensor) -> torch.memory_format:
    """Returns the memory format of a tensor. One that is not dense counts as contiguous."""
    return torch.channels_last if is_channels_last(t) else torch.contiguous_format


def _to_format_of(x: Tensor, nhwc: Tensor) -> Tensor:
    """Returns (N, H, W, C) data as an (N, C, H, W) tensor in the memory format of ``x``."""
    nchw = nhwc.permute(0, 3, 1, 2)
    return nchw if is_channels_last(x) else nchw.contiguous()


def _operands(x: Tensor, weights: Tensor, bias: Tensor | None, gain: Tensor | None, grid: Sequence[int]) -> Operands:
    """Makes operands of the operator's arguments, with a view (N, H, W, C) of the dense input, and dense weights."""
    pixels = (x if is_channels_last(x) else x.contiguous()).permute(0, 2, 3, 1)
    weights = weights.contiguous(memory_format=_format_of(weights))
    return Operands(pixels, weights, bias, gain, Grid.of_numbers(grid))
