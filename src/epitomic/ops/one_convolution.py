"""Eq. 2 by one convolution: the D*D filters of every epitome are the D*D*K outputs of one ``conv2d``.

A maximum over D*D planes follows. The backward pass scatters the gradient to the winners' planes and calls one
convolution backward, where `direct` calls D*D of them. One large convolution suits GPUs. It takes torch operators
alone, so it works on every device, for every dtype, and can be differentiated twice.

The D*D*K planes would take D*D times the memory of the output. So images, and the epitomes if one image is too large,
come in chunks that fit a workspace of fixed size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Pair, count_windows
from epitomic.ops.direct import NO_MORE, Search
from epitomic.ops.tracing import needs_plain_autograd
from epitomic.ops.workspace import workspace_bytes

Chunk = tuple[slice, slice]  # images and outputs


def match_one_convolution(x: Tensor, filters: Tensor, bias: Tensor | None, stride: Pair) -> tuple[Tensor, Tensor]:
    """Computes Eq. 2 for given filters. The arguments and results are those of `direct.match_direct`."""
    differentiated = torch.is_grad_enabled() and (x.requires_grad or filters.requires_grad)
    search = _OneConvolution.apply if differentiated and not needs_plain_autograd() else _search
    y, positions = search(x, filters, stride)
    return y if bias is None else y + bias[:, None, None], positions


def _search(x: Tensor, filters: Tensor, stride: Pair) -> tuple[Tensor, Tensor]:
    d2 = filters.shape[1]
    rows: dict[int, list[tuple[Tensor, Tensor]]] = {}
    for images, outputs in _chunks(x, filters, stride):
        responses = F.conv2d(x[images], _stacked(filters[outputs]), stride=stride)
        best, where = _maximum(responses, d2)
        rows.setdefault(images.start, []).append((best, where.to(torch.uint8 if d2 <= 256 else torch.int64)))
    best, where = (_joined([_joined([part[i] for part in row], 1) for row in rows.values()], 0) for i in range(2))
    return best, where


class _OneConvolution(Search):
    """Searches by one convolution for each chunk."""

    @staticmethod
    def forward(x: Tensor, filters: Tensor, stride: Pair) -> tuple[Tensor, Tensor]:
        return _search(x, filters, stride)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Calls one convolution backward for each chunk. All operators are differentiable."""
        x, filters, positions = ctx.saved_tensors
        need_x, need_filters, _ = ctx.needs_input_grad
        d2 = filters.shape[1]
        plane = torch.arange(d2, device=x.device)[:, None, None, None]
        dx: dict[int, Tensor] = {}  # by first image
        dfilters: dict[int, Tensor] = {}  # by first output
        for images, outputs in _chunks(x, filters, ctx.stride):
            dy, where = grads[0][images, outputs].unsqueeze(1), positions[images, outputs].unsqueeze(1)
            scattered = torch.where(where == plane, dy, 0.0).flatten(1, 2)  # (N, D*D*K, oh, ow)
            dx_part, dfilter, _ = torch.ops.aten.convolution_backward(
                scattered,
                x[images],
                _stacked(filters[outputs]),
                None,
                ctx.stride,
                *NO_MORE,
                (need_x, need_filters, False),
            )
            if need_x:
                dx[images.start] = dx_part if images.start not in dx else dx[images.start] + dx_part
            if need_filters:
                first = outputs.start
                dfilters[first] = dfilter if first not in dfilters else dfilters[first] + dfilter
        unstacked = [d.unflatten(0, (d2, -1)).transpose(0, 1) for d in dfilters.values()]  # (K, D*D, C, W, W)
        return (
            _joined(list(dx.values()), 0) if need_x else None,
            _joined(unstacked, 0) if need_filters else None,
            None,
        )


def _chunks(x: Tensor, filters: Tensor, stride: Pair) -> Iterator[Chunk]:
    """Divides images and outputs so that the responses of a chunk at all positions fit the workspace."""
    outputs, d2 = filters.shape[:2]
    planes = math.prod(count_windows(x.shape[2:], filters.shape[3:], stride)) * d2  # responses of an image and output
    most = max(1, workspace_bytes(x.device) // (x.element_size() * planes))  # images times outputs
    step = min(outputs, most)
    images = max(1, most // step)
    for i in range(0, max(1, x.shape[0]), images):  # an empty batch is one chunk
        for k in range(0, outputs, step):
            yield slice(i, i + images), slice(k, k + step)


def _stacked(filters: Tensor) -> Tensor:
    """Stacks the filters, (K, D*D, C, W, W) -> (D*D*K, C, W, W), with the positions outermost."""
    return filters.transpose(0, 1).flatten(0, 1)


def _maximum(responses: Tensor, d2: int) -> tuple[Tensor, Tensor]:
    """Returns the maximum over the D*D planes and its first position, (N, K, oh, ow). NaN wins. Keeps channels_last."""
    if responses.is_contiguous():
        best, where = responses.unflatten(1, (d2, -1)).max(1)
        return best, where
    best, where = responses.permute(0, 2, 3, 1).unflatten(3, (d2, -1)).max(3)  # (N, oh, ow, K)
    return best.permute(0, 3, 1, 2), where.permute(0, 3, 1, 2)


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
