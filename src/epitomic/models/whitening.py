"""First layers that are not learned but computed from images, to make their values uncorrelated and of equal size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.support.errors import UserError

PATCH = 2  # filter size of `Whitening`
LOCAL = 5  # filter size of `LocalWhitening`
ITERATIONS = 200  # iterations of `LocalWhitening.undo`
CHUNK = 100  # images at a time
TINY = 1e-6  # smaller standard deviations count as zero


class Whitening(nn.Conv2d):
    """Fixed filters that make the principal components of patches equally large, each also with its sign turned.

    Args:
        in_channels: Number of image channels.
        eps: Added to the variances, so that components that hardly vary are not blown up.
    """

    def __init__(self, in_channels: int, eps: float = 5e-4) -> None:
        super().__init__(in_channels, 2 * in_channels * PATCH**2, PATCH)
        self.eps = eps
        self.weight.requires_grad_(False)

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Computes the filters from the patches of some images, (N, C, H, W)."""
        variances, components = torch.linalg.eigh(_covariance(images, self.in_channels, PATCH))
        filters = (components / (variances + self.eps).sqrt()).T.reshape(-1, *self.weight.shape[1:])
        self.weight.copy_(torch.cat((filters, -filters)))


class LocalWhitening(nn.Conv2d):
    """ZCA whitening (Krizhevsky 2009) of the patch around each pixel. It keeps the whitened pixel: an image again.

    Goodfellow et al. (2013), whose maxout networks the paper compares with, whiten whole images. Filters for patches
    need fewer images, and fit images of any size. Before `fit`, the layer is the identity.

    Args:
        channels: Number of image channels.
        eps: Added to the variances, so that fine noise is not blown up.
    """

    def __init__(self, channels: int, eps: float = 0.02) -> None:
        super().__init__(channels, channels, LOCAL, padding=LOCAL // 2, bias=False)
        self.eps = eps
        self.weight.requires_grad_(False)

    def reset_parameters(self) -> None:
        """Makes the layer the identity."""
        super().reset_parameters()
        nn.init.dirac_(self.weight)

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Computes the filters from the patches of some images, (N, C, H, W), on which the outputs have variance 1."""
        covariance = _covariance(images, self.in_channels, LOCAL)  # (C 5 5, C 5 5)
        variances, components = torch.linalg.eigh(covariance)
        whiten = (components / (variances + self.eps).sqrt()) @ components.T
        centre = whiten.unflatten(0, (self.in_channels, LOCAL**2))[:, LOCAL**2 // 2]  # (C, C 5 5)
        deviation = ((centre @ covariance) * centre).sum(1, keepdim=True).sqrt()
        scale = torch.where(deviation > TINY, 1 / deviation, 0)  # a channel that does not vary becomes zero
        self.weight.copy_((centre * scale).reshape(self.weight.shape))

    @torch.no_grad()
    def undo(self, white: Tensor) -> Tensor:
        """Finds the images, (N, C, H, W), whose whitening is closest to ``white``, by conjugate gradients."""
        weight = self.weight.double()
        x = torch.zeros_like(white, dtype=torch.float64)
        residual = F.conv_transpose2d(white.double(), weight, padding=LOCAL // 2)
        direction, size = residual, _squares(residual)
        for _ in range(ITERATIONS):
            image = F.conv2d(direction, weight, padding=LOCAL // 2)
            step = size / _squares(image).clamp(min=1e-30)
            x = x + step * direction
            residual = residual - step * F.conv_transpose2d(image, weight, padding=LOCAL // 2)
            before, size = size, _squares(residual)
            direction = residual + size / before.clamp(min=1e-30) * direction
        return x.to(white.dtype)


def _squares(images: Tensor) -> Tensor:
    """Returns the sum of squares of each image, (N, 1, 1, 1)."""
    return images.square().sum((1, 2, 3), keepdim=True)


def _covariance(images: Tensor, channels: int, size: int) -> Tensor:
    """Returns the covariance of all size x size patches of some images: (N, C, H, W) -> (C size size, C size size).

    Raises:
        UserError: If the images have another shape or values that are not finite.
    """
    if images.dim() != 4 or images.shape[1] != channels or min(images.shape[2:]) < size or not len(images):
        fits = f"(N, {channels}, H, W), at least {size} pixels each way"
        raise UserError(f"a whitening needs images of shape {fits}, got {tuple(images.shape)}")
    if not images.isfinite().all():
        raise UserError("a whitening needs images of finite numbers, got NaN or infinity among them")
    sums, products, count = torch.zeros(()), torch.zeros(()), 0
    for part in images.split(CHUNK):
        patches = F.unfold(part.double(), size).transpose(0, 1).flatten(1)  # (C size size, patches)
        sums, products = sums + patches.sum(1), products + patches @ patches.T
        count += patches.shape[1]
    mean = sums / count
    return products / count - mean.outer(mean)
