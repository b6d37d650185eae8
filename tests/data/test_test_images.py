"""The test images that a network's config.json asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from epitomic.data.small.sets import load_set
from epitomic.data.test_images import open_test_images
from epitomic.support.errors import UserError
from tests.photographs import CLASSES, make_folders

PATH = Path("run/config.json")
DIGITS = {
    "dataset": "digits",
    "in_channels": 1,
    "image_size": 8,
    "num_classes": 10,
    "standardize": {"mean": [0.5], "std": [0.25]},
}


def photographs(folder: Path) -> dict[str, Any]:
    make_folders(folder / "imagenette", train=1, val=2)
    settings = {"crop": 20, "size": 24, "flip": True, "color_noise": 0.0}
    standardize = {"mean": [0.5] * 3, "std": [0.25] * 3}
    network = {"in_channels": 3, "image_size": 20, "num_classes": 3}
    return {
        "dataset": "imagenette",
        "classes": list(CLASSES),
        "photographs": settings,
        "standardize": standardize,
        **network,
    }


def test_the_small_set_as_it_is() -> None:
    test = open_test_images(DIGITS, PATH)
    images = load_set("digits").test
    ((batch, labels),) = test.batches()
    torch.testing.assert_close(batch, (images.images.float() / 255 - 0.5) / 0.25)
    assert torch.equal(labels, images.labels)
    assert torch.equal(test.sample().images, images.images)
    assert (test.way, list(test.tests())) == ({"views": "one"}, ["test"])


def test_views_of_the_config_unless_others_are_asked_for() -> None:
    config = {**DIGITS, "views": "mirrored"}
    assert [next(iter(b))[0].shape[:-2] for b in open_test_images(config, PATH).tests().values()] == [
        (360, 2, 1),
        (360, 1),
    ]
    assert open_test_images(config, PATH, views="nudged").way == {"views": "nudged"}


def test_crops_of_photographs(tmp_path: Path) -> None:
    config = photographs(tmp_path)
    test = open_test_images(config, PATH, str(tmp_path), workers=0)
    assert [next(iter(batches))[0].shape for batches in test.tests().values()] == [(6, n, 3, 20, 20) for n in (10, 1)]
    one = open_test_images(config, PATH, str(tmp_path), crops=1, workers=0)
    assert (test.way, one.way, next(iter(one.batches()))[0].shape[1]) == ({"crops": 10}, {"crops": 1}, 1)
    assert test.sample().images.shape == (6, 3, 20, 20)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dataset": "letters"}, "its dataset must be one of digits, .*, got letters"),
        ({"dataset": None}, "got None"),
        ({"num_classes": 9}, r"takes \(channels, size, classes\) \(1, 8, 9\), but digits has \(1, 8, 10\)"),
        ({"views": "shifty"}, "did you mean 'shifted'"),
        ({"standardize": {"mean": [0.5]}}, "no 'standardize' with a std of 1 channels"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as error:
        open_test_images({**DIGITS, **change}, PATH)
    assert str(PATH) in str(error.value)


def test_photographs_for_another_number_of_channels(tmp_path: Path) -> None:
    config = {**photographs(tmp_path), "in_channels": 1, "standardize": {"mean": [0.5], "std": [0.25]}}
    with pytest.raises(UserError, match=r"takes .* \(1, 20, 3\), but imagenette has \(3, 20, 3\)"):
        open_test_images(config, PATH, str(tmp_path))
