"""Mosaics of first layers, and pictures that are the same every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from epitomic.analysis.first_layer import read_first_layer
from epitomic.analysis.patches import exciting_patches
from epitomic.models import create_model
from epitomic.support.errors import UserError
from epitomic.visualisation import (
    curves_figure,
    epitome_figure,
    filters_figure,
    mosaic,
    open_run,
    patches_figure,
    save_figure,
)
from epitomic.visualisation.mosaics import SMOOTH


@pytest.mark.parametrize(
    ("name", "size", "text"),
    [
        ("epitomic_small", (6, 6), "48 epitomes of 6 × 6, filters of 5 × 5"),
        ("maxpool_small", (5, 5), "48 filters of 5 × 5"),
        ("maxout_small", (10, 10), "48 × 4 maxout filters of 5 × 5"),
        ("maxpool_fast", (2, 2), "24 fixed whitening filters of 2 × 2"),
        ("topographic_small_norm", (12, 12), "3 epitomes of 12 × 12, filters of 5 × 5"),
    ],
)
def test_mosaics_of_all_kinds(name: str, size: tuple[int, int], text: str) -> None:
    found = read_first_layer(create_model(name, in_channels=3))
    assert found.text == text
    columns = 3
    picture = mosaic(found, columns=columns)
    rows = -(-len(found.weight) // columns)
    assert picture.shape == (rows * (size[0] + 1) - 1, columns * (size[1] + 1) - 1, 4)
    assert mosaic(found, columns=columns, smooth=True).shape[1] == SMOOTH * picture.shape[1]
    colours = picture[picture[..., 3] == 1][:, :3]  # without the gaps
    assert 0 <= colours.min() <= 0.1
    assert 0.9 <= colours.max() <= 1


def test_contrast_shows_weak_epitomes_and_keeps_zero_grey() -> None:
    model = create_model("epitomic_small", in_channels=3)
    layer = model.get_submodule("features.layer1.conv")
    with torch.no_grad():
        before = mosaic(read_first_layer(model))
        layer.weight[5] *= 1e-3  # type: ignore[index, operator]
        torch.testing.assert_close(mosaic(read_first_layer(model)), before)
        weak = mosaic(read_first_layer(model), contrast="shared", columns=48)[:, 35:41, :3]
        assert np.abs(weak - 0.5).max() < 0.01
        layer.weight.zero_()  # type: ignore[operator]
    assert np.allclose(mosaic(read_first_layer(model))[..., :3][mosaic(read_first_layer(model))[..., 3] == 1], 0.5)
    grey = mosaic(read_first_layer(model), colour=False)
    assert np.array_equal(grey[..., 0], grey[..., 1])


def test_figures_are_written_the_same_every_time(folder: Path, tmp_path: Path) -> None:
    run = open_run(folder)
    excited = patches_figure(exciting_patches(run, run.test.images[:60], "features.layer2.conv", units=3), "title")
    for figure in (
        filters_figure([run]),
        filters_figure([run] * 5),
        epitome_figure(run, 3),
        curves_figure([run]),
        excited,
    ):
        files = save_figure(figure, tmp_path / "one") + save_figure(figure, tmp_path / "two")
        assert [f.suffix for f in files] == [".png", ".svg", ".png", ".svg"]
        assert files[0].read_bytes() == files[2].read_bytes()
        assert files[1].read_bytes() == files[3].read_bytes()
    with pytest.raises(UserError, match="--epitome must be from 0 to 15"):
        epitome_figure(run, 99)
