"""Reading and resizing, against slow literal versions."""

from __future__ import annotations

import contextlib
import io
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epitomic.data.pixels import BadImageError, decode, encode, resize_short, resize_square
from tests.photographs import picture  # skips all without Pillow


def contents(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def literal_resize(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    """A triangle filter as wide as a new pixel (at least an old one), along rows, then columns; bytes in between."""

    def along(rows: np.ndarray, size: int) -> np.ndarray:
        old = rows.shape[1]
        scale = old / size
        support = max(scale, 1.0)
        result = np.zeros((rows.shape[0], size, 3))
        for new in range(size):
            center = (new + 0.5) * scale
            first, last = max(0, int(center - support + 0.5)), min(old, int(center + support + 0.5))
            weights = [max(0.0, 1 - abs((at + 0.5 - center) / support)) for at in range(first, last)]
            for at, weight in zip(range(first, last), weights, strict=True):
                result[:, new] += rows[:, at] * weight / sum(weights)
        return np.floor(result + 0.5).clip(0, 255)

    across = along(pixels.astype(float), width)
    return along(across.transpose(1, 0, 2), height).transpose(1, 0, 2)


@pytest.mark.parametrize(("width", "height", "size"), [(50, 40, 16), (40, 50, 16), (21, 20, 33), (64, 17, 16)])
def test_resizing_is_the_literal_one(width: int, height: int, size: int) -> None:
    image = picture(3, 1, width, height)
    resized = resize_short(image, size)
    assert min(resized.size) == size
    long = round(max(width, height) * size / min(width, height))
    assert resized.size == ((size, long) if width < height else (long, size))
    expected = literal_resize(np.asarray(image), *resized.size)
    assert np.abs(np.asarray(resized) - expected).max() <= 1  # Pillow rounds in fixed point
    square = literal_resize(np.asarray(image), size, size)
    assert np.abs(np.asarray(resize_square(image, size)) - square).max() <= 1


def test_what_would_become_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    thin = Image.new("RGB", (1, 3000))
    with pytest.raises(BadImageError, match="1 x 3000 pixels would become 24 x 72000, more than 65500"):
        resize_short(thin, 24)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2 * 6000 - 1)
    with pytest.raises(BadImageError, match="limit of 11999"):
        resize_short(thin, 2)
    with pytest.raises(BadImageError, match="cannot be written as JPEG"):
        encode(Image.new("RGB", (1, 70000)), 95)


def test_an_image_of_the_right_size_is_not_touched() -> None:
    image = picture(1, width=40, height=32)
    assert resize_short(image, 32) is image


def test_all_kinds_become_the_same_rgb() -> None:
    image = picture(2, 1)
    pixels = np.asarray(image)
    assert np.array_equal(np.asarray(decode(contents(image, "PNG"))), pixels)
    grey = image.convert("L")
    expected = np.repeat(np.asarray(grey)[..., None], 3, 2)
    assert np.array_equal(np.asarray(decode(contents(grey, "PNG"))), expected)
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 256 + 77)
    assert np.array_equal(np.asarray(decode(contents(deep, "PNG"))), expected)
    cmyk = decode(contents(image.convert("CMYK"), "JPEG", quality=100, subsampling=0))
    assert np.abs(np.asarray(cmyk).astype(int) - pixels).mean() < 3
    palette = image.quantize(256)
    assert np.array_equal(np.asarray(decode(contents(palette, "PNG"))), np.asarray(palette.convert("RGB")))
    transparent = image.convert("RGBA")
    transparent.putalpha(0)
    assert (np.asarray(decode(contents(transparent, "PNG"))) == 255).all()
    one_bit = decode(contents(grey.convert("1"), "PNG"))
    assert one_bit.mode == "RGB"


def test_jpeg_at_full_colour_resolution() -> None:
    image = picture(4, 2)
    again = decode(encode(image, 95))
    error = np.asarray(again).astype(float) - np.asarray(image)
    assert math.sqrt((error**2).mean()) < 6


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda raw: raw[: len(raw) // 2], "truncated"),
        (lambda raw: b"", "neither JPEG nor PNG nor WebP"),
        (lambda raw: b"no image", "neither JPEG nor PNG nor WebP"),
        (lambda raw: contents(picture(1), "GIF"), "neither JPEG nor PNG nor WebP"),
        (lambda raw: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "neither JPEG nor PNG nor WebP"),
    ],
)
def test_bad_images_say_why(damage: object, says: str) -> None:
    raw = contents(picture(1, width=200, height=200), "JPEG")
    with pytest.raises(BadImageError, match=says):
        decode(damage(raw))  # type: ignore[operator]


def test_a_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = contents(picture(1), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40 * 32 - 1)  # Pillow itself only warns below twice this
    with pytest.raises(BadImageError, match="limit"):
        decode(raw)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(BadImageError, match="DecompressionBomb"):
        decode(raw)


def test_a_missing_file() -> None:
    with pytest.raises(BadImageError, match="FileNotFoundError"):
        decode(Path("nowhere.jpg"))


def test_fuzzed_files_are_read_or_refused() -> None:
    rng = np.random.default_rng(0)
    for kind in ("JPEG", "PNG", "WEBP"):
        good = contents(picture(1), kind)
        for _ in range(60):
            raw = bytearray(good)
            for at in rng.integers(0, len(raw), 3):
                raw[at] = rng.integers(256)
            with contextlib.suppress(BadImageError):
                assert decode(bytes(raw)).mode == "RGB"
