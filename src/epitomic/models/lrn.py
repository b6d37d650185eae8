"""Local response normalisation across channels (Krizhevsky et al. 2012), fast on CPU in either memory format.

``F.local_response_norm`` pools over a 3-D view, for which torch has no fast kernel. Here the sum over neighbouring
channels is a few shifted additions, over as many images at a time as stay in the cache. So is its gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.ops.tracing import needs_known_operators

NEAR = 131072  # values per tensor, so that a few such tensors stay in the cache


class LocalResponseNorm(nn.Module):
    """Divides each channel by a power of the sum of squares of its neighbours, as Krizhevsky et al. write it.

    y_c = x_c / (k + alpha * sum of x^2 over the ``size`` channels around c) ^ 0.75. Here alpha multiplies the sum;
    ``nn.LocalResponseNorm`` multiplies the mean, so its alpha is ``size`` times ours.

    Args:
        size: Number of channels in the sum, odd.
        alpha: Factor on the sum.
        k: Constant that keeps the denominator away from zero.
    """

    def __init__(self, size: int = 5, alpha: float = 1e-4, k: float = 2.0) -> None:
        super().__init__()
        if size % 2 == 0:
            raise ValueError(f"size must be odd, for as many channels on both sides, got {size}")
        self.size, self.alpha, self.k = size, alpha, k

    def forward(self, x: Tensor) -> Tensor:
        """Normalises (N, C, H, W) across C."""
        eager = not (torch.compiler.is_compiling() or needs_known_operators())
        if eager and x.is_cpu and x.dtype in (torch.float32, torch.float64):
            return _LocalResponseNorm.apply(x, self.size // 2, self.alpha, self.k)
        return F.local_response_norm(x, self.size, self.alpha * self.size, 0.75, self.k)

    def extra_repr(self) -> str:
        """Returns the constants, for ``print(model)``."""
        return f"size={self.size}, alpha={self.alpha}, k={self.k}"


class _LocalResponseNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, reach: int, alpha: float, k: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.constants = reach, alpha, k
        y = torch.empty_like(x)
        few = _images_at_a_time(x)
        buffers = [torch.empty_like(x[:few]) for _ in range(2)]
        for images, out in zip(x.split(few), y.split(few), strict=True):
            scale, square = (b[: len(images)] for b in buffers)
            _scale(images, reach, alpha, k, scale, square)  # s
            torch.div(images, _power(scale, square), out=out)  # x / s^0.75
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        """Computes dx_c = dy_c / s_c^0.75 - 1.5 alpha x_c * (sum of dy x / s^1.75 over the channels around c)."""
        (x,) = ctx.saved_tensors
        reach, alpha, k = ctx.constants
        dx = torch.empty_like(x)
        few = _images_at_a_time(x)
        buffers = [torch.empty_like(x[:few]) for _ in range(4)]
        for images, gradient, out in zip(x.split(few), dy.split(few), dx.split(few), strict=True):
            scale, power, work, terms = (b[: len(images)] for b in buffers)
            _scale(images, reach, alpha, k, scale, work)
            power = _power(power.copy_(scale), work)
            torch.div(gradient, power, out=out)
            torch.mul(out, images, out=work).div_(scale)
            _channel_sum(work, reach, terms)
            out.addcmul_(terms, images, value=-1.5 * alpha)
        return dx, None, None, None


def _images_at_a_time(x: Tensor) -> int:
    return max(1, NEAR // max(1, x.shape[1:].numel()))


def _scale(images: Tensor, reach: int, alpha: float, k: float, out: Tensor, work: Tensor) -> None:
    """Writes s = k + alpha * sum of x^2 over neighbouring channels to ``out``."""
    _channel_sum(torch.mul(images, images, out=work), reach, out)
    out.mul_(alpha).add_(k)


def _power(scale: Tensor, work: Tensor) -> Tensor:
    """Returns scale^0.75, in place, by two square roots, which are much faster than a power."""
    scale.sqrt_()
    return scale.mul_(torch.sqrt(scale, out=work))


def _channel_sum(values: Tensor, reach: int, out: Tensor) -> None:
    """Writes the sum over the channels up to ``reach`` away to ``out``, by shifted additions."""
    out.copy_(values)
    for shift in range(1, min(reach, values.shape[1] - 1) + 1):
        out[:, shift:] += values[:, :-shift]
        out[:, :-shift] += values[:, shift:]
