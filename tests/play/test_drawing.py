"""Drawings are placed as the digits of the training set are."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from epitomic.models import from_pretrained
from epitomic.play.drawing import place_digit, read_picture
from epitomic.support.errors import UserError


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def stroke(*box: int) -> Image.Image:
    image = Image.new("L", (280, 280))
    ImageDraw.Draw(image).rectangle(box, fill=255)
    return image


@pytest.mark.parametrize("box", [(0, 0, 19, 199), (250, 30, 279, 100), (100, 270, 260, 279), (5, 5, 5, 5)])
def test_a_digit_is_as_large_as_in_mnist_and_its_mass_is_in_the_middle(box: tuple[int, int, int, int]) -> None:
    placed = np.asarray(place_digit(stroke(*box), 28, 20 / 28)).astype(float)
    assert placed.shape == (28, 28)
    rows, columns = placed.sum(1).nonzero()[0], placed.sum(0).nonzero()[0]
    assert max(rows.max() - rows.min(), columns.max() - columns.min()) + 1 == 20
    for axis in (0, 1):
        sums = placed.sum(axis)
        assert abs((sums * (np.arange(28) + 0.5)).sum() / sums.sum() - 14) <= 0.5


def test_it_never_leaves_the_image() -> None:
    heavy = stroke(10, 10, 60, 270)
    ImageDraw.Draw(heavy).line((60, 270, 270, 270), fill=255, width=4)
    for filled in (1.0, 20 / 28):
        placed = np.asarray(place_digit(heavy, 8, filled))
        assert placed.max() > 200
    assert np.asarray(place_digit(Image.new("L", (280, 280)), 28, 20 / 28)).max() == 0


def test_a_drawn_seven_is_a_seven_wherever_it_is_drawn() -> None:
    model = from_pretrained("epitomic_small-mnist")
    preprocess = model.preprocess
    for left, top, scale in ((20, 20, 60), (150, 120, 100), (60, 30, 180)):
        image = Image.new("RGB", (280, 280))
        corners = [(left, top), (left + 0.7 * scale, top), (left + 0.3 * scale, top + scale)]
        ImageDraw.Draw(image).line(corners, fill="white", width=scale // 8, joint="curve")
        pixels = read_picture(png(image), preprocess, drawing=True)  # type: ignore[arg-type]
        scores = model(preprocess(pixels))  # type: ignore[operator]
        assert scores.argmax() == 7


def test_light_and_dark_are_swapped_and_bad_files_are_named() -> None:
    preprocess = from_pretrained("epitomic_small-mnist").preprocess
    light = read_picture(png(Image.new("RGB", (50, 40), "white")), preprocess)  # type: ignore[arg-type]
    assert (light == 255).all()
    assert light.dtype == torch.uint8
    dark = read_picture(png(Image.new("RGB", (50, 40), "white")), preprocess, invert=True)  # type: ignore[arg-type]
    assert (dark == 0).all()
    with pytest.raises(UserError, match="cannot be read as an image: it is not a JPEG, PNG"):
        read_picture(b"%!PS-Adobe-3.0 EPSF-3.0", preprocess)  # type: ignore[arg-type]
