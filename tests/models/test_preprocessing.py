"""`model.preprocess`: the same pixels as in evaluation, whatever form an image comes in."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from epitomic.models import Preprocessing, create_model, save_pretrained
from epitomic.models.preprocessing import PretrainedConfig
from epitomic.support.errors import UserError

Image = pytest.importorskip("PIL.Image", reason="needs Pillow: pip install 'epitomic[images]'")


def preprocessing(channels: int = 3, size: int = 8, **entries: Any) -> Preprocessing:
    standardize = {"mean": [0.5] * channels, "std": [0.25] * channels}
    options = {"model": "any", "num_classes": 2, "in_channels": channels, "image_size": size}
    return Preprocessing(PretrainedConfig.read({"standardize": standardize, "num_classes": 2, **entries}, options))


def wave(width: int, height: int) -> Any:
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    pixels = torch.stack((x * 255 // width, y * 255 // height, (x + y) * 255 // (width + height)), 2)
    return Image.fromarray(pixels.to(torch.uint8).numpy())


def bytes_of(image: Any) -> torch.Tensor:
    import numpy as np

    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize("photographs", [None, {"size": 10}])
@pytest.mark.parametrize("shape", [(8, 8), (40, 24), (23, 57), (5, 5)])
def test_a_path_a_picture_and_a_tensor_give_the_same(
    shape: tuple[int, int], photographs: dict[str, int] | None, tmp_path: Path
) -> None:
    if photographs and shape == (8, 8):
        pytest.skip("a tensor of the network's size is taken as it is")
    preprocess = preprocessing(photographs=photographs)
    image = wave(*shape)
    image.save(tmp_path / "image.png")
    batch = preprocess(image)
    assert batch.shape == (1, 3, 8, 8)
    assert torch.equal(preprocess(str(tmp_path / "image.png")), batch)
    assert torch.equal(preprocess([tmp_path / "image.png"]), batch)
    pixels = bytes_of(image)
    for tensor in (pixels, pixels.float() / 255, pixels[None]):  # Pillow rounds to bytes, twice
        torch.testing.assert_close(preprocess(tensor), batch, rtol=0, atol=0.1)


def test_a_tensor_that_fits_is_only_standardised() -> None:
    pixels = torch.rand(4, 3, 8, 8)
    assert torch.allclose(preprocessing(photographs={"size": 10})(pixels), (pixels - 0.5) / 0.25)


def test_photographs_are_seen_as_in_evaluation() -> None:
    from epitomic.data.photographs.crops import center_crop
    from epitomic.support.images import resize_short

    image = wave(37, 21)
    seen = preprocessing(photographs={"size": 11}).from_picture(image)
    expected = torch.from_numpy(center_crop(resize_short(image, 11), 8)[0].copy()).permute(2, 0, 1)
    assert torch.equal(seen, expected)


def test_grey_and_colour_become_what_the_network_takes() -> None:
    image = wave(8, 8)
    grey = preprocessing(channels=1)
    torch.testing.assert_close(grey(image), grey(bytes_of(image)), rtol=0, atol=0.02)
    one = torch.rand(1, 8, 8)
    assert torch.equal(preprocessing()(one)[0, 2], preprocessing()(one.expand(3, 8, 8))[0, 0])
    clear = image.convert("RGBA")
    clear.putalpha(0)
    assert torch.equal(preprocessing()(clear), torch.full((1, 3, 8, 8), 2.0))  # white


@pytest.mark.parametrize(
    ("images", "says"),
    [
        ("nothing.png", "nothing.png cannot be read as an image"),
        ([], "at least one image"),
        (torch.rand(8, 8), r"must be a tensor \(C, H, W\)"),
        (torch.rand(2, 8, 8), "takes 3 channels"),
        (torch.rand(4, 8, 8), "transparent"),
        (3, "a path, a PIL image or a tensor, got int"),
    ],
)
def test_what_does_not_fit_is_named(images: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        preprocessing()(images)


def test_a_loaded_network_has_it(tmp_path: Path) -> None:
    model = create_model("epitomic_small", image_size=8, width=0.25)
    standardize = {"mean": [0.1], "std": [0.3]}
    save_pretrained(model, tmp_path, classes=list("abcdefghij"), standardize=standardize)
    loaded: Any = create_model("epitomic_small", pretrained=tmp_path)
    assert loaded.pretrained_cfg.classes == tuple("abcdefghij")
    assert loaded.pretrained_cfg["standardize"] == standardize  # the entries of config.json, as ever
    assert loaded(loaded.preprocess(torch.rand(2, 1, 8, 8))).shape == (2, 10)
    again = pickle.loads(pickle.dumps(copy.deepcopy(loaded)))
    assert torch.equal(again.preprocess(torch.ones(1, 8, 8)), loaded.preprocess(torch.ones(1, 8, 8)))
    other: Any = create_model("epitomic_small", pretrained=tmp_path, num_classes=3)
    assert other.pretrained_cfg.classes == ("0", "1", "2")


def test_without_a_mean_it_says_so(tmp_path: Path) -> None:
    save_pretrained(create_model("epitomic_small", image_size=8, width=0.25), tmp_path)
    model: Any = create_model("epitomic_small", pretrained=tmp_path)
    with pytest.raises(UserError, match="no 'standardize'"):
        model.preprocess(torch.rand(1, 8, 8))
