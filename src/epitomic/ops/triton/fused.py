"""``algorithm="triton"``: all positions by matrix products whose operands are never stored, on a GPU's matrix units.

A program holds a tile of patches and outputs. It takes the D*D positions one after the other and keeps the best
response so far, and its position, in registers. Nothing of D*D times the output's size is ever written. The two large
gradients take one launch each. For each position, the gradient of the winners goes to the matrix units: dy where this
position won, else 0. Each sum has one order, without atomic additions, so results repeat to the last bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import wrap_triton

from epitomic.ops.filters import filter_means, patch_means
from epitomic.ops.operands import Gradients, Operands
from epitomic.ops.tracing import is_in_tensor_mode
from epitomic.ops.triton import fused_kernels, launches
from epitomic.ops.triton.launches import Launch, Sizes
from epitomic.ops.triton.served import interpreting


def forward(operands: Operands) -> tuple[Tensor, Tensor]:
    """See `matching.Kernel.forward`."""
    x, weights, bias, gain, grid = operands
    sizes = Sizes.of(operands)
    y, winners = x.new_empty(operands.output), x.new_empty(operands.output, dtype=torch.uint8)
    if y.numel() == 0:
        return y, winners
    launch = launches.forward_launch(sizes, bias=bias is not None, gain=gain is not None, wide=wide(x))
    unused = y  # stands for the tensors that are not there
    gains = sums = means = unused
    if gain is not None:
        gains, sums = by_position(gain), by_position(filter_means(weights.float(), grid.patch)) * _terms(operands)
        means = patch_means(x, grid.patch, grid.stride)
    run(launch, x, packed(weights), unused if bias is None else bias, gains, sums, means, y, winners)
    return y, winners


def backward(dy: Tensor, y: Tensor | None, positions: Tensor, operands: Operands, needs: Sequence[bool]) -> Gradients:
    """See `matching.Kernel.backward`."""
    gain = operands.gain
    if dy.numel() == 0:
        return zeros(operands, needs)
    dbias = dy.sum((0, 1, 2), dtype=torch.float32).to(dy.dtype) if needs[2] else None
    scaled = None
    if gain is not None:
        assert y is not None
        scaled = GainGradient(dy, y, positions, operands)
        dy = scaled.dy
    dx = input_gradient(dy, positions, operands) if needs[0] else None
    dweights = weight_gradient(dy, positions, operands) if needs[1] else None
    return (dx, dweights, dbias, None) if scaled is None else scaled.finish(dx, dweights, dbias, centred=False)


def input_gradient(dy: Tensor, positions: Tensor, operands: Operands) -> Tensor:
    """Returns the gradient of the input, (N, H, W, C), without that of the patches' means."""
    x = operands.x
    dx = x.new_empty(x.shape)
    run(launches.input_launch(Sizes.of(operands), wide=wide(x)), dy, positions, packed(operands.weights), dx)
    return dx


def weight_gradient(dy: Tensor, positions: Tensor, operands: Operands) -> Tensor:
    """Returns the gradient of the weights, (K, C, S, S) in float32, without that of the patches' means."""
    x, (k, c, sh, sw) = operands.x, operands.weights.shape
    launch = launches.weight_launch(Sizes.of(operands), wide=wide(x))
    parts = x.new_empty((launch.grid[2], k, sh, sw, c), dtype=torch.float32)
    run(launch, dy, positions, x, parts)
    return parts.sum(0).permute(0, 3, 1, 2)


class GainGradient:
    """The parts of the backward pass that Eq. 3 adds: a gain for each filter, and the means of the patches.

    The response is gain * (x^T w - mean(x) * sum(w)). So dy is scaled by the winners' gain, and both large gradients
    get a term for the product of the means.
    """

    def __init__(self, dy: Tensor, y: Tensor, positions: Tensor, operands: Operands) -> None:
        x, weights, bias, gain, self.grid = operands
        assert gain is not None
        self.weights, sizes, self.terms = weights, Sizes.of(operands), _terms(operands)
        means = patch_means(x, self.grid.patch, self.grid.stride)
        self.dy, self.patch_sums = torch.empty_like(dy), torch.empty_like(means)
        filters = by_position(filter_means(weights.float(), self.grid.patch))
        run(launches.scale_launch(sizes), dy, positions, by_position(gain), filters, self.dy, self.patch_sums)
        launch = launches.sums_launch(sizes, bias=bias is not None)
        parts = x.new_empty((launch.grid[2], 2, gain.shape[1], gain.shape[0]), dtype=torch.float32)
        run(launch, dy, y, dy if bias is None else bias, positions, self.dy, means, parts)
        responses, self.filter_sums = parts.sum(0).transpose(1, 2).unbind(0)  # (K, D*D)
        self.dgain = responses / gain

    def finish(self, dx: Tensor | None, dweights: Tensor | None, dbias: Tensor | None, *, centred: bool) -> Gradients:
        """Returns all gradients. ``centred`` says whether ``dweights`` was made of centred patches."""
        dx = None if dx is None else self._centred_input(dx)
        if dweights is not None and not centred:
            dweights = self._centred_weights(dweights)
        return dx, dweights, dbias, self.dgain

    def _centred_input(self, dx: Tensor) -> Tensor:
        """Subtracts from each patch the mean of its gradient, which is the transpose of centring the patches."""
        ones = dx.new_ones((1, 1, *self.grid.patch), dtype=torch.float32)
        spread = F.conv_transpose2d(self.patch_sums.unsqueeze(1), ones, stride=self.grid.stride)  # (N, 1, h, w)
        padding = 0, dx.shape[2] - spread.shape[3], 0, dx.shape[1] - spread.shape[2]
        return (dx - F.pad(spread, padding).squeeze(1).unsqueeze(3)).to(dx.dtype)

    def _centred_weights(self, dweights: Tensor) -> Tensor:
        """Subtracts from each filter's gradient the means of its patches."""
        (wh, ww), (sh, sw) = self.grid.patch, self.weights.shape[2:]
        sums = self.filter_sums.unflatten(1, (sh - wh + 1, sw - ww + 1)).unsqueeze(1)  # (K, 1, D, D)
        ones = dweights.new_ones((1, 1, wh, ww))
        return dweights - F.conv_transpose2d(sums, ones)


def zeros(operands: Operands, needs: Sequence[bool]) -> Gradients:
    """Returns the gradients of a call without outputs."""
    tensors = zip(operands[:4], needs, strict=True)
    dx, dweights, dbias, dgain = (None if t is None or not need else torch.zeros_like(t) for t, need in tensors)
    return dx, dweights, dbias, dgain


def run(launch: Launch, *tensors: Tensor, kernels: Any = fused_kernels) -> None:
    """Launches a kernel on its tensors, in the order of its arguments."""
    kernel = getattr(kernels, launch.kernel)
    if not interpreting():
        kernel = configured(kernel, launch)
    with on_device_of(tensors[0]):
        wrap_triton(kernel)[launch.grid](*tensors, **launch.numbers, **launch.constants)


def on_device_of(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which Triton launches on the GPU of a tensor, which need not be the current one.

    What is traced is launched later, by torch, which sees to this itself.
    """
    if x.device.type != "cuda" or is_in_tensor_mode():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)


def configured(kernel: Any, launch: Launch) -> Any:
    """Returns a kernel with the options of a launch, in the one form that ``torch.compile`` takes all of them.

    It is made anew for each launch, because threads must not share it.
    """
    from triton import Config, autotune

    return autotune([Config(launch.options, num_warps=launch.warps, num_stages=launch.stages)], key=[])(kernel)


def packed(weights: Tensor) -> Tensor:
    """Returns the weights as the kernels read them: (K, C, S, S) -> (S, S, C, K)."""
    return weights.permute(2, 3, 1, 0).contiguous()


def by_position(values: Tensor) -> Tensor:
    """Returns values of each filter by position, in float32: (K, D*D) -> (D*D, K)."""
    return values.t().float().contiguous()


def wide(x: Tensor) -> bool:
    """Whether to multiply in float32: Triton's interpreter gives wrong products of bfloat16."""
    return interpreting() and x.dtype == torch.bfloat16


def _terms(operands: Operands) -> int:
    """Returns the number of values of a patch."""
    return operands.x.shape[3] * operands.grid.patch[0] * operands.grid.patch[1]
