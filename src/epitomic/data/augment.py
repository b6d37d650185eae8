"""Augmentation of a whole batch at once, in tensors.

The random choices of a step are drawn for the whole global batch, from a generator that belongs to that step; a process
then applies those of its own samples. So the same run has the same images on any number of processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.options import option


@dataclass(frozen=True)
class Augmentation:
    """What is done to the training images at random; nothing by default."""

    shift: int = option(0, "whole pixels, up to so many each way", at_least=0)
    reflect: bool = option(False, "what comes in by the shift is the image mirrored, not zero")
    flip: bool = option(False, "left to right, half of the time")
    alternate: bool = option(False, "flips each image in every other epoch instead, half of them in the first")
    rotate: float = option(0.0, "degrees, up to so many each way", at_least=0)
    scale: float = option(0.0, "0.1: between 0.9 and 1.1 times, height and width each", at_least=0, below=1)
    shear: float = option(0.0, "degrees, up to so many each way", at_least=0, below=90)
    translate: float = option(0.0, "pixels and fractions of them, up to so many each way", at_least=0)
    elastic: float = option(0.0, "pixels: standard deviation of a smooth random displacement", at_least=0)
    elastic_cells: int = option(4, "that displacement varies over a grid of so many cells each way", at_least=1)
    cutout: int = option(0, "side in pixels of a square set to the mean", at_least=0)

    @property
    def warps(self) -> bool:
        """Whether the images are resampled at fractions of pixels."""
        return any((self.rotate, self.scale, self.shear, self.translate, self.elastic))


Choices = dict[str, Tensor]


def choose(config: Augmentation, count: int, size: int, generator: torch.Generator) -> Choices:
    """The random choices for ``count`` images of ``size`` x ``size`` pixels; every entry has ``count`` rows."""

    def uniform(*shape: int) -> Tensor:  # of -1 to 1
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
        # Where in the old image each pixel of the new one comes from: rotation, after shear, after scale.
        rows = (
            cos / scale[:, 0],
            (slant * cos - sin) / scale[:, 1],
            sin / scale[:, 0],
            (slant * sin + cos) / scale[:, 1],
        )
        matrix = torch.stack(rows, 1).reshape(count, 2, 2)
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
    """Changes the images as chosen, all but cutout.

    Args:
        config: What is done.
        choices: As `choose` gave them, the rows of these images.
        images: (N, C, H, W), floating, zero where there is nothing.
    """
    if config.shift or config.flip:
        images = _shift_and_flip(images, choices, config.reflect)
    if config.warps:
        images = _warp(images, choices)
    return images


def cut_out(config: Augmentation, choices: Choices, images: Tensor) -> Tensor:
    """Sets a square of each image to zero, which after standardisation is the mean."""
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
    rows, cols = torch.arange(h).expand(n, h), torch.arange(w).expand(n, w)  # where each pixel comes from
    if "flip" in choices:
        cols = torch.where(choices["flip"][:, None], w - 1 - cols, cols)
    if "shift" in choices:
        rows, cols = rows + choices["shift"][:, :1], cols + choices["shift"][:, 1:]
    outside = None
    if "shift" in choices and not reflect:
        outside = ((rows < 0) | (rows >= h))[:, :, None] | ((cols < 0) | (cols >= w))[:, None, :]
    rows, cols = _mirror(rows, h), _mirror(cols, w)
    samples = torch.arange(n)[:, None, None]
    moved = images[samples, :, rows[:, :, None], cols[:, None, :]]  # (N, H, W, C): indices first, channels after
    if outside is not None:
        moved = moved.masked_fill_(outside[..., None], 0)
    return moved.permute(0, 3, 1, 2)


def _mirror(index: Tensor, size: int) -> Tensor:
    """Indices outside of 0 to size - 1, mirrored at the first and last pixel."""
    index = index.abs()
    return torch.where(index >= size, 2 * size - 2 - index, index).clamp_(0, size - 1)


def _warp(images: Tensor, choices: Choices) -> Tensor:
    """The affine map and the elastic displacement, in one resampling."""
    size = images.shape[2:]
    grid = F.affine_grid(choices["affine"].to(images.dtype), list(images.shape), align_corners=False)  # (N, H, W, 2)
    if "elastic" in choices:
        field = F.interpolate(choices["elastic"].to(images.dtype), size=size, mode="bicubic", align_corners=True)
        grid = grid + field.permute(0, 2, 3, 1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
