"""One image: files of any size and mode, and networks of any kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from epitomic.errors import UserError
from epitomic.visualisation import explain, explain_figure, first_epitomes, open_run, read_image
from epitomic.visualisation.explain import position_colours, position_map
from tests.visualisation.conftest import MakeRun


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "LA", "1", "CMYK", "I;16", "F", "I"])
@pytest.mark.parametrize("channels", [1, 3])
def test_any_size_and_mode_is_converted(mode: str, channels: int, tmp_path: Path) -> None:
    grey = np.tile(np.linspace(0, 255, 40, dtype=np.uint8), (30, 1))
    image = Image.fromarray(grey)
    if mode == "I;16":
        image = Image.fromarray(grey.astype(np.uint16) * 257)
    elif mode in ("F", "I"):
        image = Image.fromarray(grey.astype(np.float32 if mode == "F" else np.int32))
    else:
        image = image.convert(mode)
    path = tmp_path / ("image.tiff" if mode in ("CMYK", "F", "I") else "image.png")
    image.save(path)
    pixels = read_image(path, channels, 8)
    assert pixels.shape == (channels, 8, 8)
    assert pixels.dtype == torch.uint8
    row = pixels[0, 4].int()
    assert row[0] < 70
    assert row[-1] > 185  # the picture is still there


def test_the_right_size_is_taken_as_it_is(tmp_path: Path) -> None:
    values = torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8)
    Image.fromarray(values.permute(1, 2, 0).numpy()).save(tmp_path / "image.png")
    assert torch.equal(read_image(tmp_path / "image.png", 3, 8), values)


def test_what_is_no_image_is_said(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("not an image")
    run = open_run(folder)
    with pytest.raises(UserError, match="cannot be read as an image"):
        explain(run, tmp_path / "text.png")
    with pytest.raises(UserError, match="is not there"):
        explain(run, tmp_path / "none.png")
    with pytest.raises(UserError, match="from 0 to 359"):
        explain(run, 360)


def test_matches_are_those_of_the_layers(folder: Path) -> None:
    run = open_run(folder)
    found = explain(run, 5)
    assert found.label == int(run.test.labels[5])
    assert [m.name for m in found.matches] == [f"features.layer{i}.conv" for i in (1, 2, 3)]
    first = found.matches[0]
    y, positions = first.layer.match(run.to_input(run.test.images[5:6]))
    assert torch.equal(first.positions, positions)
    torch.testing.assert_close(first.response, y.detach())
    assert [r.matches for r in found.rebuilt] == [1, 4, None]
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-5)
    picture = position_map(first, 2)
    colours = position_colours((2, 2)).reshape(-1, 3)
    np.testing.assert_allclose(picture[..., :3], colours[positions[0, 2].numpy()])
    explain_figure(run, found)


def test_images_are_rebuilt_as_pixels_behind_a_whitening_too(make_run: MakeRun) -> None:
    run = open_run(make_run(whiten=True))
    found = explain(run, 5)
    image = run.test.images[5:6].float() / 255
    assert not torch.allclose(found.matches[0].input, run.to_input(run.test.images[5:6]), atol=0.1)
    torch.testing.assert_close(run.to_pixels(found.matches[0].input), image, atol=0.02, rtol=0)
    assert first_epitomes(run.model).kind == "epitomes"
    explain_figure(run, found)


@pytest.mark.parametrize("model", ["maxpool_small", "maxout_small"])
def test_a_network_without_epitomes_shows_what_applies(model: str, make_run: MakeRun) -> None:
    run = open_run(make_run(model))
    found = explain(run, 0)
    assert found.matches == []
    assert found.rebuilt == []
    texts = [t.get_text() for t in explain_figure(run, found).texts]
    assert any("has no epitomic layer" in text for text in texts)


def test_colours_of_positions_are_all_different() -> None:
    colours = position_colours((3, 3)).reshape(-1, 3)
    distances = np.abs(colours[:, None] - colours[None]).sum(2) + np.eye(9)
    assert distances.min() > 0.15
