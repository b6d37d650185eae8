"""The paper's crops: a random one for training; the centre, or ten regular ones, for testing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from epitomic.support.images import BadImageError, resize_square, to_array
from epitomic.support.options import option
from epitomic.support.rng import generator

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Photographs:
    """What is done to photographs. Small images in memory have `Augmentation` instead."""

    crop: int = option(220, "height and width in pixels of the crop that the network sees", at_least=1, alias="crop")
    size: int = option(256, "short side in pixels of images from plain folders; a store has its own", at_least=1)
    flip: bool = option(True, "mirror half of the training images left to right, chosen at random")
    color_noise: float = option(0.1, "standard deviation of noise along the colours' principal components", at_least=0)
    zoom: float | None = option(
        None, "smallest share of an image that a training crop enlarges; none enlarges nothing", above=0, below=1
    )


@dataclass(frozen=True)
class Choice:
    """Random choices for one image in one epoch."""

    top: float  # distance of the crop from the top, as a share of the largest possible one
    left: float  # distance of the crop from the left, as a share of the largest possible one
    flip: bool  # whether to mirror the crop
    noise: tuple[float, float, float]  # standard normal numbers for the colour noise
    area: float = 0.0  # place of the crop's area between the smallest and the largest one, 0 to 1
    aspect: float = 0.5  # place of the crop's aspect between 3:4 and 4:3, 0 to 1


def choose(seed: int, epoch: int, sample: int, zoomed: bool = True) -> Choice:
    """Draws the choices for an image; the same arguments give the same choices.

    Area and aspect, which come last, are drawn only for ``zoomed`` crops, to save time.
    """
    draws = generator("photograph", seed, epoch, sample)
    top, left, flip = torch.rand(3, generator=draws, dtype=torch.float64).tolist()
    first, second, third = torch.randn(3, generator=draws).tolist()
    if not zoomed:
        return Choice(top, left, flip < 0.5, (first, second, third))
    area, aspect = torch.rand(2, generator=draws, dtype=torch.float64).tolist()
    return Choice(top, left, flip < 0.5, (first, second, third), area, aspect)


def random_crop(image: Image | Any, config: Photographs, choice: Choice) -> Any:
    """Returns the chosen crop, (crop, crop, 3), uint8; every place in the image is equally likely.

    It is not mirrored: `mirror` does that on the whole batch, which is faster. The image may also be its pixels.
    """
    if config.zoom is not None:
        return _zoomed_crop(image, config.crop, config.zoom, choice)
    height, width = _margins(image, config.crop)
    top, left = int(choice.top * (height + 1)), int(choice.left * (width + 1))
    return _cut(image, top, left, config.crop)


def _zoomed_crop(image: Any, crop: int, smallest: float, choice: Choice) -> Any:
    """Returns a part of the image, resized: (crop, crop, 3), uint8; its area and aspect are random."""
    height, width = image.shape[:2] if hasattr(image, "shape") else (image.height, image.width)
    area = height * width * (smallest + (1 - smallest) * choice.area)
    aspect = 0.75 * (16 / 9) ** choice.aspect
    rows, columns = (
        min(side, max(1, round(math.sqrt(part)))) for side, part in ((height, area / aspect), (width, area * aspect))
    )
    top, left = int(choice.top * (height - rows + 1)), int(choice.left * (width - columns + 1))
    box = (left, top, left + columns, top + rows)
    part: Any = image.crop(box) if not hasattr(image, "shape") else image[top : top + rows, left : left + columns]
    return to_array(resize_square(part, crop))


def mirror(images: Tensor, chosen: Tensor) -> Tensor:
    """Mirrors the chosen images, (N,) bool, of a batch, (N, H, W, 3), left to right, in place and on its device."""
    places = chosen.nonzero().flatten().to(images.device, non_blocking=True)
    images[places] = images[places].flip(2)
    return images


def center_crop(image: Image | Any, crop: int) -> Any:
    """Returns the centre, (1, crop, crop, 3), uint8; an odd margin is smaller above and on the left."""
    height, width = _margins(image, crop)
    return _cut(image, height // 2, width // 2, crop)[None]


def ten_crops(image: Image | Any, crop: int) -> Any:
    """Returns the centre, the four corners and the mirror images of these five, (10, crop, crop, 3), uint8."""
    import numpy as np

    height, width = _margins(image, crop)
    places = [(height // 2, width // 2), (0, 0), (0, width), (height, 0), (height, width)]
    crops = np.stack([_cut(image, top, left, crop) for top, left in places])
    return np.concatenate((crops, crops[:, :, ::-1]))


def _margins(image: Any, crop: int) -> tuple[int, int]:
    """Returns how many pixels the image is higher and wider than the crop."""
    height, width = image.shape[:2] if hasattr(image, "shape") else (image.height, image.width)
    if min(height, width) < crop:
        raise BadImageError(f"{width} x {height} pixels are smaller than the crop of {crop}")
    return height - crop, width - crop


def _cut(image: Any, top: int, left: int, crop: int) -> Any:
    if hasattr(image, "shape"):
        return image[top : top + crop, left : left + crop]
    return to_array(image.crop((left, top, left + crop, top + crop)))
