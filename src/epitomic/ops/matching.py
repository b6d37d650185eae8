"""The one kernel: mini-epitome matching with stride 1 inside the epitome, as a torch operator.

Everything the paper calls an epitomic layer reduces to it (``functional.py`` has the reductions):

    y[n, k, i] = max_p gain[k, p] * (x_i - mean(x_i))^T w_{k,p} + bias[k]       p in the D x D window (Eq. 2 and 3)

without ``gain``, the raw patches x_i and a gain of one. This file is the seam between torch and the implementations: it
owns the operator's schema, fake kernels, autograd and memory formats. To add an implementation, give it the two
functions of `Kernel` and a line in `KERNELS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from epitomic.ops import native, winograd
from epitomic.ops.operands import Gradients, Operands


class Kernel(Protocol):
    """What an implementation of the kernel provides."""

    def forward(self, operands: Operands) -> tuple[Tensor, Tensor]:
        """Matches every patch with every epitome.

        Returns:
            y, (N, oh, ow, K), and the winning position in the D x D window, uint8, row-major, the lowest among equals.
        """

    def backward(
        self, dy: Tensor, y: Tensor | None, positions: Tensor, operands: Operands, needs: Sequence[bool]
    ) -> Gradients:
        """Gradients of x, epitomes, bias and gain, None where ``needs`` does not ask. ``y`` comes with gain only.

        Where x is a view of dense (N, C, H, W) data, its gradient may be one, too.
        """


KERNELS: dict[str, Kernel] = {"native": native, "winograd": winograd}


@torch.library.custom_op("epitomic::match", mutates_args=())
def match(
    x: Tensor,
    epitomes: Tensor,
    bias: Tensor | None,
    gain: Tensor | None,
    kernel: Sequence[int],
    stride: Sequence[int],
    implementation: str,
) -> tuple[Tensor, Tensor]:
    """The operator over (N, C, H, W) tensors: y and positions, (N, K, oh, ow), in the memory format of ``x``."""
    y, positions = KERNELS[implementation].forward(_operands(x, epitomes, bias, gain, kernel, stride))
    return _to_format_of(x, y), _to_format_of(x, positions)


@match.register_fake
def _(
    x: Tensor,
    epitomes: Tensor,
    bias: Tensor | None,
    gain: Tensor | None,
    kernel: Sequence[int],
    stride: Sequence[int],
    implementation: str,
) -> tuple[Tensor, Tensor]:
    n, _, h, w = x.shape
    size = (n, (h - kernel[0]) // stride[0] + 1, (w - kernel[1]) // stride[1] + 1, epitomes.shape[0])
    return _to_format_of(x, x.new_empty(size)), _to_format_of(x, x.new_empty(size, dtype=torch.uint8))


@torch.library.custom_op("epitomic::match_backward", mutates_args=())
def match_backward(
    dy: Tensor,
    y: Tensor | None,
    positions: Tensor,
    x: Tensor,
    epitomes: Tensor,
    bias: Tensor | None,
    gain: Tensor | None,
    kernel: Sequence[int],
    stride: Sequence[int],
    needs: Sequence[bool],
    implementation: str,
) -> list[Tensor]:
    """Gradients of x, epitomes, bias and gain; an empty tensor where ``needs`` does not ask for one."""

    def nhwc(t: Tensor) -> Tensor:
        return t.permute(0, 2, 3, 1).contiguous()

    operands = _operands(x, epitomes, bias, gain, kernel, stride)
    saved = None if y is None else nhwc(y)
    dx, *rest = KERNELS[implementation].backward(nhwc(dy), saved, nhwc(positions), operands, needs)
    return [x.new_empty(0) if g is None else g for g in (None if dx is None else _to_format_of(x, dx), *rest)]


@match_backward.register_fake
def _(
    dy: Tensor,
    y: Tensor | None,
    positions: Tensor,
    x: Tensor,
    epitomes: Tensor,
    bias: Tensor | None,
    gain: Tensor | None,
    kernel: Sequence[int],
    stride: Sequence[int],
    needs: Sequence[bool],
    implementation: str,
) -> list[Tensor]:
    dx = _to_format_of(x, x.new_empty(x.permute(0, 2, 3, 1).shape)) if needs[0] else x.new_empty(0)
    rest = zip((epitomes, bias, gain), needs[1:], strict=True)
    return [dx, *(x.new_empty(0) if t is None or not need else x.new_empty(t.shape) for t, need in rest)]


def _setup_context(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, epitomes, bias, gain, ctx.kernel, ctx.stride, ctx.implementation = inputs
    y, positions = output
    ctx.mark_non_differentiable(positions)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, epitomes, bias, gain, positions, y if gain is not None else None)


def _backward(ctx, dy: Tensor | None, _: Tensor | None):  # type: ignore[no-untyped-def]
    if dy is None:
        return (None,) * 7
    x, epitomes, bias, gain, positions, y = ctx.saved_tensors
    needs = ctx.needs_input_grad[:4]
    grads = match_backward(dy, y, positions, x, epitomes, bias, gain, ctx.kernel, ctx.stride, needs, ctx.implementation)
    return (*(g if need else None for g, need in zip(grads, needs, strict=True)), None, None, None)


def _no_double_backward(ctx, *_):  # type: ignore[no-untyped-def]
    raise RuntimeError(
        "epitomic convolution has no double backward in the fast algorithms: use algorithm='direct' (or 'reference')"
    )


match.register_autograd(_backward, setup_context=_setup_context)
match_backward.register_autograd(_no_double_backward)


def _to_format_of(x: Tensor, nhwc: Tensor) -> Tensor:
    """(N, H, W, C) data as an (N, C, H, W) tensor in the memory format of ``x``: channels_last or contiguous."""
    nchw = nhwc.permute(0, 3, 1, 2)
    return nchw if is_channels_last(x) else nchw.contiguous()


def _operands(
    x: Tensor, epitomes: Tensor, bias: Tensor | None, gain: Tensor | None, kernel: Sequence[int], stride: Sequence[int]
) -> Operands:
    """Of the operator's arguments: x (N, C, H, W), dense in either format, as a view (N, H, W, C)."""
    pixels = (x if is_channels_last(x) else x.contiguous()).permute(0, 2, 3, 1)
    return Operands(pixels, epitomes.contiguous(), bias, gain, (kernel[0], kernel[1]), (stride[0], stride[1]))


def is_channels_last(x: Tensor) -> bool:
    """Whether ``x`` is channels_last. With one channel the two formats hold the same data, and the stride tells."""
    if x.is_contiguous():
        return x.shape[1] == 1 and x.stride(1) == 1 and x.shape[2] * x.shape[3] > 1
    return x.is_contiguous(memory_format=torch.channels_last)
