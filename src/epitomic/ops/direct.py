"""Epitomic convolution through torch's own convolution: one strided ``conv2d`` per position, and a running maximum.

Works for every geometry, dtype and device that ``conv2d`` works for, traces and exports as ordinary operators, and
differentiates twice. No response of another position than the best so far is kept.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from epitomic.geometry import Pair


def match_direct(x: Tensor, filters: Tensor, bias: Tensor | None, stride: Pair) -> tuple[Tensor, Tensor]:
    """Eq. 2 for given filters.

    Args:
        x: Padded input, (N, C, H, W).
        filters: The filters w_{k,p}, (K, D*D, C, W, W).
        bias: (K,) or None, added after the maximum.
        stride: Step of the patches.

    Returns:
        Responses, (N, K, oh, ow), and the winning p, an integer tensor of the same shape.
    """
    # torch.jit, ONNX's older exporter and forward mode know operators alone.
    plain = torch._C._get_tracing_state() is not None or forward_ad._current_level >= 0
    if torch.is_grad_enabled() and (x.requires_grad or filters.requires_grad) and not plain:
        y, positions = _MatchDirect.apply(x, filters, stride)
    else:
        y, positions = _search(x, filters, stride)
    if bias is not None:
        y = y + bias[:, None, None]
    return y, positions


def _search(x: Tensor, filters: Tensor, stride: Pair) -> tuple[Tensor, Tensor]:
    best = F.conv2d(x, filters[:, 0], stride=stride)  # (N, K, oh, ow)
    positions = torch.zeros_like(best, dtype=torch.uint8 if filters.shape[1] <= 256 else torch.int64)
    for p in range(1, filters.shape[1]):
        response = F.conv2d(x, filters[:, p], stride=stride)
        positions = positions.masked_fill(response > best, p)  # strictly better: equal maxima leave the lowest p
        best = torch.maximum(best, response)  # NaN wins
    return best, positions


class _MatchDirect(torch.autograd.Function):
    """`_search` that remembers the winners only: plain autograd would keep a mask for each of the D*D positions."""

    generate_vmap_rule = True  # for torch.func

    @staticmethod
    def forward(x: Tensor, filters: Tensor, stride: Pair) -> tuple[Tensor, Tensor]:
        return _search(x, filters, stride)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Pair], output: tuple[Tensor, Tensor]) -> None:
        x, filters, ctx.stride = inputs
        _, positions = output
        ctx.mark_non_differentiable(positions)
        ctx.save_for_backward(x, filters, positions)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Each gradient goes to its one winner. Made of differentiable operators: double backward follows."""
        x, filters, positions = ctx.saved_tensors
        need_x, need_filters, _ = ctx.needs_input_grad
        dx: Tensor | None = None
        dfilters = []
        for p in range(filters.shape[1]):
            dx_p, dfilter, _ = torch.ops.aten.convolution_backward(
                grads[0] * (positions == p),
                x,
                filters[:, p],
                None,
                ctx.stride,
                (0, 0),
                (1, 1),
                False,
                (0, 0),
                1,
                (need_x, need_filters, False),
            )
            if need_x:
                dx = dx_p if dx is None else dx + dx_p
            if need_filters:
                dfilters.append(dfilter)
        return dx, torch.stack(dfilters, 1) if need_filters else None, None
