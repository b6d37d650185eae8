"""Crops and flips, against literal versions."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from epitomic.data.photographs.crops import Photographs, center_crop, choose, mirror, random_crop, ten_crops
from epitomic.support.images import BadImageError
from tests.photographs import picture

DRAWS = 6000


def test_ten_crops_are_the_literal_ones() -> None:
    image = picture(1, width=41, height=34)
    pixels = np.asarray(image)
    crops = ten_crops(image, 30)
    expected = []
    for top, left in ((2, 5), (0, 0), (0, 11), (4, 0), (4, 11)):  # centre, then the corners
        expected.append([[[pixels[top + y, left + x, c] for c in range(3)] for x in range(30)] for y in range(30)])
    for crop in expected[:5]:
        expected.append([row[::-1] for row in crop])
    assert np.array_equal(crops, np.array(expected))
    assert np.array_equal(center_crop(image, 30)[0], crops[0])


def test_a_crop_that_does_not_fit() -> None:
    for cut in (center_crop, ten_crops):
        with pytest.raises(BadImageError, match="40 x 32 pixels are smaller than the crop of 33"):
            cut(picture(1), 33)


def test_random_crops_are_uniform_and_half_are_flipped() -> None:
    height, width, crop = 20, 18, 16  # 5 x 3 places
    values = np.arange(height * width).reshape(height, width)
    image = Image.fromarray(np.stack((values // 256, values % 256, values * 0), 2).astype(np.uint8))
    config, places, flips = Photographs(crop=crop), Counter[tuple[int, int]](), 0
    for sample in range(DRAWS):
        choice = choose(7, 1, sample)
        straight = torch.from_numpy(random_crop(image, config, choice).copy())[None]
        cut = mirror(straight, torch.tensor([choice.flip]))[0].numpy().astype(int)
        first, last = cut[0, 0, 0] * 256 + cut[0, 0, 1], cut[0, -1, 0] * 256 + cut[0, -1, 1]
        flips += first > last
        top, left = divmod(min(first, last), width)
        places[top, left] += 1
        literal = np.asarray(image)[top : top + crop, left : left + crop].astype(int)
        assert np.array_equal(cut, literal[:, ::-1] if first > last else literal)
    assert abs(flips / DRAWS - 0.5) < 4 * math.sqrt(0.25 / DRAWS)
    assert set(places) == {(y, x) for y in range(5) for x in range(3)}
    expected = DRAWS / 15
    chi_square = sum((count - expected) ** 2 / expected for count in places.values())
    assert chi_square < 36.1  # 14 degrees of freedom, 0.1 %
    for sample in range(20):  # pixels are cut as the image is
        choice = choose(7, 1, sample)
        assert np.array_equal(random_crop(np.asarray(image), config, choice), random_crop(image, config, choice))


def test_the_chosen_images_of_a_batch_are_mirrored() -> None:
    images = torch.randint(0, 256, (5, 4, 6, 3), dtype=torch.uint8)
    chosen = torch.tensor([True, False, True, True, False])
    expected = torch.stack(
        [image[:, list(range(5, -1, -1))] if c else image for image, c in zip(images, chosen, strict=True)]
    )
    assert torch.equal(mirror(images.clone(), chosen), expected)


def test_choices_are_a_function_of_seed_epoch_and_sample() -> None:
    assert choose(1, 2, 3) == choose(1, 2, 3)
    zoomed, cut = choose(1, 2, 3), choose(1, 2, 3, zoomed=False)
    assert (cut.top, cut.left, cut.flip, cut.noise) == (zoomed.top, zoomed.left, zoomed.flip, zoomed.noise)
    assert len({choose(*key) for key in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4))}) == 4


def test_zoomed_crops_have_areas_between_the_smallest_and_the_whole() -> None:
    values = np.zeros((40, 50, 3), np.uint8)
    values[..., 0], values[..., 1] = np.mgrid[:40, :50] * 5
    config, spans = Photographs(crop=24, zoom=0.25), []
    for sample in range(300):
        choice = choose(7, 1, sample)
        cut = random_crop(values, config, choice)
        assert cut.shape == (24, 24, 3)
        assert np.array_equal(cut, random_crop(Image.fromarray(values), config, choice))
        rows, columns = ((np.ptp(cut[..., channel].astype(float)) / 5 + 1) for channel in (0, 1))
        spans.append(rows * columns / 2000)
    assert 0.15 < min(spans) < 0.35
    assert max(spans) > 0.85
    assert 0.5 < float(np.mean(spans)) < 0.7
