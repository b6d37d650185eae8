"""Image files of any size and mode are read as the network takes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from epitomic.analysis.explanation import explain, read_image
from epitomic.support.errors import UserError
from epitomic.training.run_folder import open_run


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "LA", "1", "CMYK", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_any_size_and_mode_is_converted(mode: str, channels: int, tmp_path: Path) -> None:
    grey = np.tile(np.linspace(0, 255, 40, dtype=np.uint8), (30, 1))
    image = Image.fromarray(grey)
    image = Image.fromarray(grey.astype(np.uint16) * 257) if mode == "I;16" else image.convert(mode)
    path = tmp_path / ("image.tiff" if mode == "CMYK" else "image.png")
    image.save(path)
    pixels = read_image(path, channels, 8)
    assert pixels.shape == (channels, 8, 8)
    assert pixels.dtype == torch.uint8
    row = pixels[0, 4].int()
    assert row[0] < 70
    assert row[-1] > 185  # the picture is still there


def test_the_decoder_is_that_of_the_training_images(tmp_path: Path) -> None:
    upright = np.zeros((8, 8), np.uint8)
    upright[0, :4] = 200
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.rot90(upright).copy()).save(tmp_path / "turned.png", exif=exif)
    assert np.array_equal(read_image(tmp_path / "turned.png", 1, 8)[0], upright)
    Image.fromarray(np.full((8, 8), 200 * 256 + 77, np.uint16)).save(tmp_path / "deep.png")
    assert (read_image(tmp_path / "deep.png", 3, 8) == 200).all()
    Image.fromarray(upright.astype(np.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(UserError, match=r"float\.tiff cannot be read as an image: its pixels are 32-bit"):
        read_image(tmp_path / "float.tiff", 1, 8)
    Image.fromarray(upright).save(tmp_path / "image.eps")
    with pytest.raises(UserError, match="it is not a JPEG, PNG"):
        read_image(tmp_path / "image.eps", 1, 8)


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
