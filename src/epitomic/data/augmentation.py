"""Augmentation of a whole batch at once, in tensors.

Each step draws its random choices for the whole global batch, from a generator of its own. A process then applies the
choices for its own images, so a run sees the same images on any number of processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.support.options import option


@dataclass(frozen=True)
class Augmentation:
    """Random changes of the training images; by default there are none."""

    shift: int = option(0, "shift by up to this many whole pixels in each direction", at_least=0)
    reflect: bool = option(False, "fill what a shift leaves empty with the mirrored image instead of zeros")
    flip: bool = option(False, "mirror half of the images left to right, chosen at random")
    alternate: bool = option(False, "with flip, mirror each image in every other epoch; half of them start mirrored")
    rotate: float = option(0.0, "rotate by up to this many degrees in each direction", at_least=0)
    scale: float = option(
        0.0, "scale height and width by up to this share; 0.1 is 0.9 to 1.1 times", at_least=0, below=1
    )
    shear: float = option(0.0, "shear by up to this many degrees in each direction", at_least=0, below=90)
    translate: float = option(0.0, "shift by up to this many pixels, with fractions, in each direction", at_least=0)
    elastic: float = option(0.0, "standard deviation in pixels of a smooth random displacement", at_least=0)
    elastic_cells: int = option(4, "grid cells in each direction over which that displacement varies", at_least=1)
    cutout: int = option(0, "side in pixels of a square that is set to the mean", at_least=0)

    @property
    def warps(self) -> bool:
        """Whether pixels are interpolated."""
        return any((self.rotate, self.scale, self.shear, self.translate, self.elastic))


Choices = dict[str, Tensor]


def choose(config: Augmentation, count: int, size: int, generator: torch.Generator) -> Choices:
    """Draws the random choices for ``count`` images of ``size`` x ``size`` pixels; every entry has ``count`` rows."""

    def uniform(*shape: int) -> Tensor:  # from -1 to 1
        return torch.rand(count, *shape, generator=generator) * 2 - 1

    choices: Choices = {}
    if config.shift:
        choices["shift"] = torch.randint(-config.shift, config.shift + 1, (count, 2), generator=generator)
    if config.flip and not config.alternate:
        choices["flip"] = torch.randint(0, 2, (count,), generator=generator, dtype=torch.bool)
    if config.warps:
        angle, shear = (uniform() * math.radians(limit) for limit in (config.rotate, config.shear))
        scale = 1 + config.scale * uniform(2)
        cos, sin, slant = angle.cos(), angle.sin(), shear.tan()
        # Maps a pixel of the new image to its place in the old one: scales, then shears, then rotates.
        x, y = scale.unbind(1)
        entries = (cos / x, (slant * cos - sin) / y, sin / x, (slant * sin + cos) / y)
        matrix = torch.stack(entries, 1).reshape(count, 2, 2)
        offset = uniform(2) * (config.translate * 2 / size)
        choices["affine"] = torch.cat((matrix, offset[:, :, None]), 2)  # (count, 2, 3), in grid_sample's units
    if config.elastic:
        cells = config.elastic_cells + 1
        noise = torch.randn(count, 2, cells, cells, generator=generator)
        choices["elastic"] = noise * (config.elastic * 2 / size)
    if config.cutout:
        choices["cutout"] = torch.randint(0, size, (count, 2), generator=generator)
    return choices


def apply(config: Augmentation, choices: Choices, images: Tensor) -> Tensor:
    """Changes the images as chosen, except for the cutout.

    Args:
        config: Which changes to make.
        choices: The rows of `choose`'s result that belong to these images.
        images: Floating-point images, (N, C, H, W); empty places become zero.
    """
    if config.shift or config.flip:
        images = _shift_and_flip(images, choices, config.reflect)
    if config.warps:
        images = _warp(images, choices)
    return images


def cut_out(config: Augmentation, choices: Choices, images: Tensor) -> Tensor:
    """Sets a square of each standardised image to zero, the mean."""
    if not config.cutout:
        return images
    inside = []
    for axis, size in enumerate(images.shape[2:]):
        first = choices["cutout"][:, axis] - config.cutout // 2
        at = torch.arange(size) - first[:, None]  # (N, size)
        inside.append((at >= 0) & (at < config.cutout))
    square = inside[0][:, :, None] & inside[1][:, None, :]  # (N, H, W)
    return images.masked_fill(square[:, None], 0)


def _shift_and_flip(images: Tensor, choices: Choices, reflect: bool) -> Tensor:
    n, _, h, w = images.shape
    rows, cols = torch.arange(h).expand(n, h), torch.arange(w).expand(n, w)  # source of each pixel
    if "flip" in choices:
        cols = torch.where(choices["flip"][:, None], w - 1 - cols, cols)
    if "shift" in choices:
        rows, cols = rows + choices["shift"][:, :1], cols + choices["shift"][:, 1:]
    outside = None
    if "shift" in choices and not reflect:
        outside = ((rows < 0) | (rows >= h))[:, :, None] | ((cols < 0) | (cols >= w))[:, None, :]
    rows, cols = _mirror(rows, h), _mirror(cols, w)
    samples = torch.arange(n)[:, None, None]
    moved = images[samples, :, rows[:, :, None], cols[:, None, :]]  # (N, H, W, C): indexed dimensions come first
    if outside is not None:
        moved = moved.masked_fill_(outside[..., None], 0)
    return moved.permute(0, 3, 1, 2)


def _mirror(index: Tensor, size: int) -> Tensor:
    """Mirrors indices outside 0 to size - 1 at the first and last pixel."""
    index = index.abs()
    return torch.where(index >= size, 2 * size - 2 - index, index).clamp_(0, size - 1)


def _warp(images: Tensor, choices: Choices) -> Tensor:
    """Applies the affine map and the elastic displacement in one interpolation."""
    size = images.shape[2:]
    grid = F.affine_grid(choices["affine"].to(images.dtype), list(images.shape), align_corners=False)  # (N, H, W, 2)
    if "elastic" in choices:
        field = F.interpolate(choices["elastic"].to(images.dtype), size=size, mode="bicubic", align_corners=True)
        grid = grid + field.permute(0, 2, 3, 1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
