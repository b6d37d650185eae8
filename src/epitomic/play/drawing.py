"""Turns what the page sends, a drawing or an image file, into what the network sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from epitomic.models.preprocessing import Preprocessing
from epitomic.support.errors import UserError
from epitomic.support.images import BadImageError, decode, to_array

if TYPE_CHECKING:
    from PIL.Image import Image

# Share of the image's side that a digit fills in these image sets; MNIST's are 20 of 28 pixels high.
FILLED = {"mnist": 20 / 28, "digits": 1.0}


def read_picture(contents: bytes, preprocess: Preprocessing, *, drawing: bool = False, invert: bool = False) -> Tensor:
    """Returns an image file as the network sees it, as bytes, (C, S, S).

    Args:
        contents: The bytes of the image file.
        preprocess: The network's preprocessing.
        drawing: Whether it is a drawing in white on black, to be placed as the digits of the training set are.
        invert: Whether to swap light and dark, for a digit in ink on paper.

    Raises:
        UserError: If it is not an image.
    """
    try:
        image = decode(contents)
    except BadImageError as error:
        raise UserError(f"this cannot be read as an image: {error}") from None
    if drawing:
        config = preprocess.config
        image = place_digit(image, config.image_size, FILLED.get(config.dataset or "", 1.0))
    pixels = preprocess.from_picture(image)
    return 255 - pixels if invert else pixels


def place_digit(image: Image, size: int, filled: float) -> Image:
    """Crops a drawing in white on black to its ink, shrinks it, and places it by its centre of mass.

    MNIST's digits were made so: the longer side of the ink is 20 pixels, and the centre of mass is in the middle of
    the image. Without this, a small drawing in a corner looks like nothing that the network has seen.

    Args:
        image: The drawing.
        size: Height and width of the result.
        filled: Share of ``size`` that the longer side of the ink gets.
    """
    from PIL import Image as Pillow

    grey = image.convert("L")
    canvas = Pillow.new("L", (size, size))
    box = grey.getbbox()
    if box is None:  # nothing is drawn
        return canvas
    ink = grey.crop(box)
    scale = max(1.0, filled * size) / max(ink.size)
    width, height = (max(1, round(scale * side)) for side in ink.size)
    ink = ink.resize((width, height), Pillow.Resampling.BOX if scale < 1 else Pillow.Resampling.BILINEAR)
    left, top = (_place(weights, size) for weights in _projections(ink))
    canvas.paste(ink, (left, top))
    return canvas


def _projections(ink: Image) -> tuple[Tensor, Tensor]:
    """Returns the sum of each column and of each row."""
    values = torch.from_numpy(to_array(ink).copy()).double()
    return values.sum(0), values.sum(1)


def _place(weights: Tensor, size: int) -> int:
    """Returns where the ink begins on one axis, so that its centre of mass is in the middle if there is room."""
    centre = float((weights * torch.arange(len(weights))).sum() / weights.sum().clamp(min=1e-9)) + 0.5
    return min(max(0, round(size / 2 - centre)), size - len(weights))
