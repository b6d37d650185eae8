"""Local response normalisation across channels (Krizhevsky et al. 2012), for either memory format."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class LocalResponseNorm(nn.Module):
    """y_c = x_c / (k + alpha * sum of x^2 over the ``size`` channels around c) ^ beta, as Krizhevsky et al. write it.

    ``alpha`` multiplies the sum. (``nn.LocalResponseNorm`` multiplies the mean, so its alpha is ``size`` times ours.)

    Args:
        size: Neighbouring channels in the sum, an odd number.
        alpha: Weight of the sum.
        beta: The exponent.
        k: Keeps the denominator away from zero.
    """

    def __init__(self, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 2.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W), normalised across C."""
        return F.local_response_norm(x, self.size, self.alpha * self.size, self.beta, self.k)

    def extra_repr(self) -> str:
        """The constants."""
        return f"size={self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
