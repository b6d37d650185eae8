"""The layers by torch's own operators: for epitomes, one strided ``conv2d`` per position and a running maximum.

It works for every geometry, dtype and device that ``conv2d`` works for, traces and exports as ordinary operators, and
can be differentiated twice. It keeps the best responses so far, not those of every position.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Pair, PoolGeometry
from epitomic.ops.tracing import needs_plain_autograd

NO_MORE = ((0, 0), (1, 1), False, (0, 0), 1)  # padding, dilation, transposed, output padding, groups of a convolution


def match_direct(x: Tensor, filters: Tensor, bias: Tensor | None, stride: Pair) -> tuple[Tensor, Tensor]:
    """Computes Eq. 2 for given filters.

    Args:
        x: Padded input, (N, C, H, W).
        filters: The filters w_{k,p}, (K, D*D, C, W, W).
        bias: Added after the maximum, (K,), or None.
        stride: Step from one patch of the input to the next.

    Returns:
        The responses, (N, K, oh, ow), and the winning p, an integer tensor of the same shape.
    """
    differentiated = torch.is_grad_enabled() and (x.requires_grad or filters.requires_grad)
    search = _MatchDirect.apply if differentiated and not needs_plain_autograd() else _search
    y, positions = search(x, filters, stride)
    if bias is not None:
        y = y + bias[:, None, None]
    return y, positions


def max_pool_direct(
    x: Tensor, filters: Tensor, bias: Tensor | None, geometry: PoolGeometry, groups: int, *, positions: bool
) -> tuple[Tensor, Tensor | None]:
    """Computes Eq. 1 by torch's own pair, ``conv2d`` and ``max_pool2d``.

    Args:
        x: Input, (N, C, H, W).
        filters: (K, C / groups, W, W).
        bias: (K,) or None.
        geometry: The sizes.
        groups: Groups of channels, as in ``conv2d``.
        positions: Whether to return the positions as well.

    Returns:
        The responses, (N, K, oh, ow), and the winning p, int64, or None without ``positions``.
    """
    pool = geometry.pool, geometry.pool_stride, geometry.pool_padding, (1, 1), geometry.ceil_mode
    responses = F.conv2d(x, filters, bias, geometry.stride, geometry.padding, groups=groups)
    if not positions:
        return F.max_pool2d(responses, *pool), None
    y, index = F.max_pool2d(responses, *pool, return_indices=True)  # index in the plane of responses
    (sh, sw), (above, left) = geometry.pool_stride, geometry.pool_padding
    top = torch.arange(y.shape[2], device=y.device)[:, None] * sh - above
    first = torch.arange(y.shape[3], device=y.device) * sw - left
    width = responses.shape[3]
    return y, (index // width - top) * geometry.pool[1] + index % width - first


def _search(x: Tensor, filters: Tensor, stride: Pair) -> tuple[Tensor, Tensor]:
    best = F.conv2d(x, filters[:, 0], stride=stride)  # (N, K, oh, ow)
    positions = torch.zeros_like(best, dtype=torch.uint8 if filters.shape[1] <= 256 else torch.int64)
    for p in range(1, filters.shape[1]):
        response = F.conv2d(x, filters[:, p], stride=stride)
        positions = positions.masked_fill(response > best, p)  # strictly better: equal maxima leave the lowest p
        best = torch.maximum(best, response)  # gives NaN if either is NaN
    return best, positions


class Search(torch.autograd.Function):
    """A search for the best position, (x, filters, stride) -> responses and positions.

    Its gradient needs the winners alone. Plain autograd would keep a mask for each position.
    """

    generate_vmap_rule = True  # for torch.func

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Pair], output: tuple[Tensor, Tensor]) -> None:
        """Keeps what the backward pass needs."""
        x, filters, ctx.stride = inputs
        _, positions = output
        ctx.mark_non_differentiable(positions)
        ctx.save_for_backward(x, filters, positions)


class _MatchDirect(Search):
    """Searches by one convolution for each position."""

    @staticmethod
    def forward(x: Tensor, filters: Tensor, stride: Pair) -> tuple[Tensor, Tensor]:
        return _search(x, filters, stride)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Gives each gradient to its winner. All operators are differentiable, so double backward works."""
        x, filters, positions = ctx.saved_tensors
        need_x, need_filters, _ = ctx.needs_input_grad
        dx: Tensor | None = None
        dfilters = []
        for p in range(filters.shape[1]):
            won = grads[0] * (positions == p)
            dx_p, dfilter, _ = torch.ops.aten.convolution_backward(
                won, x, filters[:, p], None, ctx.stride, *NO_MORE, (need_x, need_filters, False)
            )
            if need_x:
                dx = dx_p if dx is None else dx + dx_p
            if need_filters:
                dfilters.append(dfilter)
        return dx, torch.stack(dfilters, 1) if need_filters else None, None
