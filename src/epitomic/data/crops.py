"""The paper's crops: one at random for training; the centre, or ten regular ones, for evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from epitomic.data.pixels import BadImageError, to_array
from epitomic.options import option
from epitomic.rng import generator

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Photographs:
    """What is done to photographs; images held in memory have the augmentation's settings instead."""

    crop: int = option(220, "height and width of what the network sees of an image", at_least=1, alias="crop")
    size: int = option(256, "short side of images from plain folders; a prepared store has its own", at_least=1)
    flip: bool = option(True, "left to right, half of the time")
    color_noise: float = option(0.1, "standard deviation, times the principal components of the colours", at_least=0)


@dataclass(frozen=True)
class Choice:
    """What chance has in store for one image of one epoch.

    Attributes:
        top: Of the crop, as a share of the room there is.
        left: The same.
        flip: Whether to mirror it.
        noise: Three standard normal numbers.
    """

    top: float
    left: float
    flip: bool
    noise: tuple[float, float, float]


def choose(seed: int, epoch: int, sample: int) -> Choice:
    """A function of its arguments alone."""
    draws = generator("photograph", seed, epoch, sample)
    top, left, flip = torch.rand(3, generator=draws, dtype=torch.float64).tolist()
    first, second, third = torch.randn(3, generator=draws).tolist()
    return Choice(top, left, flip < 0.5, (first, second, third))


def random_crop(image: Image, config: Photographs, choice: Choice) -> Any:
    """(crop, crop, 3), uint8, anywhere in the image with equal probability, flipped or not."""
    height, width = room(image, config.crop)
    top, left = int(choice.top * (height + 1)), int(choice.left * (width + 1))
    pixels = _cut(image, top, left, config.crop)
    return pixels[:, ::-1] if config.flip and choice.flip else pixels


def center_crop(image: Image, crop: int) -> Any:
    """(1, crop, crop, 3), uint8; where the margin is odd, the smaller half of it is above and left."""
    height, width = room(image, crop)
    return _cut(image, height // 2, width // 2, crop)[None]


def ten_crops(image: Image, crop: int) -> Any:
    """(10, crop, crop, 3), uint8: centre, four corners, and the mirror images of these five."""
    import numpy as np

    height, width = room(image, crop)
    places = [(height // 2, width // 2), (0, 0), (0, width), (height, 0), (height, width)]
    crops = np.stack([_cut(image, top, left, crop) for top, left in places])
    return np.concatenate((crops, crops[:, :, ::-1]))


def room(image: Image, crop: int) -> tuple[int, int]:
    """How far down and right a crop can go."""
    if min(image.size) < crop:
        raise BadImageError(f"{image.width} x {image.height} pixels are smaller than the crop of {crop}")
    return image.height - crop, image.width - crop


def _cut(image: Image, top: int, left: int, crop: int) -> Any:
    return to_array(image.crop((left, top, left + crop, top + crop)))
