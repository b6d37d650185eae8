"""Colour statistics and colour noise, against literal versions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from epitomic.data.photographs.color import ColorStatistics, ColorSums
from epitomic.data.photographs.crops import choose
from epitomic.data.photographs.loading import to_numbers
from epitomic.support.errors import UserError
from tests.photographs import picture

DRAWS = 6000


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
    sums.add(Image.fromarray(pixels))
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


def test_statistics_round_trip_and_know_what_they_are_of(tmp_path: Path) -> None:
    colors, _ = statistics()
    path = tmp_path / "statistics.json"
    colors.save(path)
    assert ColorStatistics.load(path, "x") == colors
    with pytest.raises(UserError, match="computed for other images"):
        ColorStatistics.load(path, "y")
    path.write_text('{"mean": [1, 2], "of": "x"}')
    with pytest.raises(UserError, match="does not hold a mean"):
        ColorStatistics.load(path, "x")


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("covariance", [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        ("covariance", [[0.1, 0.2, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 0.1]]),
        ("covariance", [[0.1, 0.2, 0.0], [0.2, 0.1, 0.0], [0.0, 0.0, 0.1]]),
        ("covariance", [[9.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        ("mean", [0.5, 0.5, 1.5]),
        ("mean", [0.5, 0.5, True]),
    ],
)
def test_statistics_that_no_images_have(entry: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "statistics.json"
    good = ((0.1, 0.0, 0.0), (0.0, 0.1, 0.0), (0.0, 0.0, 0.1))
    ColorStatistics((0.5, 0.5, 0.5), good, 3, "x").save(path)
    assert ColorStatistics.load(path, "x").covariance == good
    path.write_text(json.dumps({**json.loads(path.read_text()), entry: value}))
    with pytest.raises(UserError, match=r"statistics\.json does not hold"):
        ColorStatistics.load(path, "x")
