"""Crops, flips and colour noise: literal versions and statistics."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from epitomic.data.color import ColorStatistics, ColorSums
from epitomic.data.crops import Photographs, center_crop, choose, random_crop, ten_crops
from epitomic.data.pixels import BadImageError
from epitomic.data.views import to_numbers
from epitomic.errors import UserError
from tests.photographs import picture  # skips all without Pillow

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
    from PIL import Image

    image = Image.fromarray(np.stack((values // 256, values % 256, values * 0), 2).astype(np.uint8))
    config, places, flips = Photographs(crop=crop), Counter[tuple[int, int]](), 0
    for sample in range(DRAWS):
        cut = random_crop(image, config, choose(7, 1, sample)).astype(int)
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
    for sample in range(20):
        cut = random_crop(image, Photographs(crop=crop, flip=False), choose(7, 1, sample)).astype(int)
        first, last = cut[0, 0, 0] * 256 + cut[0, 0, 1], cut[0, -1, 0] * 256 + cut[0, -1, 1]
        assert first < last


def test_choices_are_a_function_of_seed_epoch_and_sample() -> None:
    assert choose(1, 2, 3) == choose(1, 2, 3)
    assert len({choose(*key) for key in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4))}) == 4


def statistics(count: int = 5) -> tuple[ColorStatistics, np.ndarray]:
    images = [picture(seed, seed, 37 + seed, 41) for seed in range(count)]
    sums, parts = ColorSums(), [ColorSums(), ColorSums()]
    for number, image in enumerate(images):
        sums.add(image)
        parts[number % 2].add(image)
    parts[1].merge(parts[0])
    assert parts[1] == sums  # whole numbers: the same in any order
    return sums.statistics("x"), np.concatenate([np.asarray(image).reshape(-1, 3) for image in images])


@pytest.mark.parametrize("size", [(1, 1), (341, 256), (3001, 2000)])
def test_sums_of_any_size_are_exact(size: tuple[int, int]) -> None:
    pixels = np.full((size[1], size[0], 3), (0, 255, 3), np.uint8)  # the largest sums that there can be
    pixels[0, 0] = (7, 8, 9)
    sums, values = ColorSums(), pixels.reshape(-1, 3).astype(np.int64) - 128
    sums.add(pytest.importorskip("PIL.Image").fromarray(pixels))
    assert sums.first == values.sum(0).tolist()
    assert sums.second == [int((values[:, i] * values[:, j]).sum()) for i in range(3) for j in range(i, 3)]


def test_mean_and_covariance_are_the_literal_ones() -> None:
    colors, pixels = statistics()
    values = pixels.astype(np.float64) / 255
    mean = values.sum(0) / len(values)
    covariance = sum(np.outer(v - mean, v - mean) for v in values) / len(values)
    np.testing.assert_allclose(colors.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(colors.covariance, covariance, rtol=1e-9)
    standardized = (values - mean) / np.sqrt(np.trace(covariance) / 3)
    images = torch.from_numpy(pixels[None, :, None].copy())  # (1, N, 1, 3)
    result = to_numbers(images, colors.standardize())[0, :, :, 0].T
    np.testing.assert_allclose(result, standardized, atol=1e-5)
    assert abs(result.mean(0)).max() < 1e-5


def test_colour_noise_is_krizhevskys() -> None:
    colors, _ = statistics()
    matrix = np.array(colors.covariance)
    values, vectors = np.linalg.eigh(matrix)
    normal = np.array([choose(0, 0, sample).noise for sample in range(DRAWS)])
    noise = (torch.from_numpy(normal).float() @ (colors.noise() * 0.1).T).numpy()
    for row, drawn in zip(noise[:20], normal[:20], strict=True):  # [p1 p2 p3] [a1 l1, a2 l2, a3 l3]^T
        signs = np.where(vectors.sum(0) < 0, -1, 1)
        literal = sum(signs[i] * vectors[:, i] * (0.1 * drawn[i]) * values[i] for i in range(3))
        np.testing.assert_allclose(row, literal, atol=1e-6)
    expected = vectors @ np.diag((0.1 * values) ** 2) @ vectors.T
    scale = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
    assert (np.abs(np.cov(noise.T) - expected) / scale).max() < 5 * math.sqrt(2 / DRAWS)
    assert (np.abs(noise.mean(0)) < 4 * np.sqrt(expected.diagonal() / DRAWS)).all()


def test_noise_is_one_colour_for_a_whole_image() -> None:
    colors, _ = statistics()
    image = torch.from_numpy(np.asarray(picture(1))[None].copy())
    noise = torch.tensor([[0.1, -0.2, 0.3]])
    difference = to_numbers(image, colors.standardize(), noise) - to_numbers(image, colors.standardize())
    expected = (noise / colors.standardize().std[0])[:, :, None, None].expand_as(difference)
    torch.testing.assert_close(difference, expected)


def test_statistics_round_trip_and_know_what_they_are_of(tmp_path: object) -> None:
    from pathlib import Path

    colors, _ = statistics()
    path = Path(str(tmp_path)) / "statistics.json"
    colors.save(path)
    assert ColorStatistics.load(path, "x") == colors
    with pytest.raises(UserError, match="computed for other images"):
        ColorStatistics.load(path, "y")
    path.write_text('{"mean": [1, 2], "of": "x"}')
    with pytest.raises(UserError, match="does not hold a mean"):
        ColorStatistics.load(path, "x")
