"""Reading and resizing, against slow literal versions."""

from __future__ import annotations

import contextlib
import io
import math
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from epitomic.support import images
from epitomic.support.images import (
    BadImageError,
    decode,
    decode_jpeg,
    encode,
    is_plain,
    read_bytes,
    resize_short,
    resize_square,
)
from tests.fuzzing import VARIANTS, mutate
from tests.photographs import picture  # skips all without Pillow


def contents(image: Image.Image, kind: str, **options: Any) -> bytes:
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


LOSSLESS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "WEBP": {"lossless": True, "exact": True},
    "BMP": {},
    "TIFF": {},
    "GIF": {},
}
LOSSY: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 100, "subsampling": 0},
    "AVIF": {"quality": 95, "subsampling": "4:4:4"},
}


def smooth(width: int = 40, height: int = 32) -> np.ndarray:
    """Different at every corner and in every channel, and kind to lossy formats."""
    y, x = np.mgrid[:height, :width]
    return np.stack((4 * x, 4 * y, 2 * x + 2 * y), 2).astype(np.uint8)


def is_near(image: Image.Image, pixels: np.ndarray) -> bool:
    assert image.mode == "RGB"
    return image.size == pixels.shape[1::-1] and np.abs(np.asarray(image).astype(int) - pixels).mean() < 3


@pytest.mark.parametrize("kind", [*LOSSLESS, *LOSSY])
def test_every_format(kind: str) -> None:
    image = Image.fromarray(smooth())
    if kind == "GIF":
        image = image.quantize(64).convert("RGB")
    decoded = decode(contents(image, kind, **LOSSLESS.get(kind, {}), **LOSSY.get(kind, {})))
    assert is_near(decoded, np.asarray(image))
    assert kind in LOSSY or np.array_equal(np.asarray(decoded), np.asarray(image))


def test_the_first_frame_of_a_gif() -> None:
    frames = [Image.new("RGB", (8, 6), color) for color in ("red", "blue")]
    raw = contents(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (np.asarray(decode(raw)) == (255, 0, 0)).all()


# How a camera stores an upright image, by the orientation tag that it writes.
STORED: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.transpose(1, 0, 2),
    6: lambda upright: np.rot90(upright, 1),  # to be turned clockwise
    7: lambda upright: upright[::-1, ::-1].transpose(1, 0, 2),
    8: lambda upright: np.rot90(upright, -1),
}


def tagged(upright: np.ndarray, orientation: int, kind: str, **options: Any) -> bytes:
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](upright)))
    exif = Image.Exif()
    exif[0x0112] = orientation
    return contents(stored, kind, exif=exif, **LOSSLESS.get(kind, {}), **LOSSY.get(kind, {}), **options)


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_orientation_tags_are_followed(kind: str, orientation: int) -> None:
    assert is_near(decode(tagged(smooth(), orientation, kind)), smooth())


@pytest.mark.parametrize("orientation", STORED)
def test_orientation_of_a_compressed_tiff(orientation: int) -> None:
    raw = tagged(smooth(), orientation, "TIFF", compression="tiff_lzw")
    assert np.array_equal(np.asarray(decode(raw)), smooth())


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_orientation_tags_are_ignored_on_request(kind: str) -> None:
    assert is_near(decode(tagged(smooth(), 6, kind), upright=False), np.rot90(smooth(), 1))


def test_plain_files_are_those_that_a_store_may_keep() -> None:
    for kind in ("JPEG", "PNG", "WEBP"):
        assert is_plain(contents(picture(1), kind))
        assert is_plain(tagged(smooth(), 1, kind))
        assert not is_plain(tagged(smooth(), 3, kind))
    for kind in ("GIF", "BMP", "TIFF", "AVIF"):
        assert not is_plain(contents(picture(1), kind))


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\0\x09"]
)
def test_damaged_metadata_does_not_spoil_the_pixels(exif: bytes) -> None:
    raw = contents(Image.fromarray(smooth()), "JPEG", exif=b"Exif\0\0" + exif, **LOSSY["JPEG"])
    assert is_near(decode(raw), smooth())


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bit_grey_is_divided_by_256(kind: str) -> None:
    values = np.arange(40 * 32, dtype=np.uint16).reshape(32, 40) * 51 + 77
    expected = np.repeat((values // 256)[..., None], 3, 2)
    assert np.array_equal(np.asarray(decode(contents(Image.fromarray(values), kind))), expected)


def test_16_bit_colour_is_divided_by_256() -> None:
    values = np.arange(5 * 4 * 3, dtype=np.uint16).reshape(4, 5, 3) * 1000 + 77
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", 5, 4, 16, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n"
    for name, body in chunks:
        png += struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    assert np.array_equal(np.asarray(decode(png)), values // 256)


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_32_bits_are_refused(kind: type) -> None:
    with pytest.raises(BadImageError, match=r"32-bit or signed .* save it with 8 or 16 bits"):
        decode(contents(Image.fromarray(np.full((4, 4), 200, kind)), "TIFF"))


def test_grey_and_palette() -> None:
    image = picture(2, 1)
    grey = image.convert("L")
    expected = np.repeat(np.asarray(grey)[..., None], 3, 2)
    one_bit = grey.convert("1")
    palette = image.quantize(256)
    for kind in ("PNG", "GIF", "BMP", "TIFF"):
        assert np.array_equal(np.asarray(decode(contents(grey, kind))), expected)
        assert np.array_equal(np.asarray(decode(contents(palette, kind))), np.asarray(palette.convert("RGB")))
        assert np.array_equal(np.asarray(decode(contents(one_bit, kind))), np.asarray(one_bit.convert("RGB")))


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk(kind: str) -> None:
    options = LOSSY["JPEG"] if kind == "JPEG" else {}
    assert is_near(decode(contents(Image.fromarray(smooth()).convert("CMYK"), kind, **options)), smooth())


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "AVIF"])
def test_transparent_pixels_are_shown_on_white(kind: str) -> None:
    pixels = np.full((32, 40, 4), (200, 100, 0, 255), np.uint8)
    pixels[:, :16, 3], pixels[:, 16:24, 3] = 0, 102  # 0 %, 40 %
    options = {**LOSSLESS, **LOSSY}[kind]
    decoded = np.asarray(decode(contents(Image.fromarray(pixels), kind, **options))).astype(int)
    for column, expected in ((4, (255, 255, 255)), (20, (233, 193, 153)), (36, (200, 100, 0))):
        assert np.abs(decoded[16, column] - expected).max() <= (8 if kind == "AVIF" else 1)


@pytest.mark.parametrize("mode", ["P", "RGB", "L"])
def test_a_transparent_colour_is_shown_as_white(mode: str) -> None:
    image = Image.new("RGB", (4, 4), "black")
    image.putpixel((1, 2), (9, 9, 9))
    transparent = {"P": 1, "RGB": (9, 9, 9), "L": 9}[mode]
    if mode == "P":
        image = Image.new("P", (4, 4))
        image.putpalette([0, 0, 0, 9, 9, 9])
        image.putpixel((1, 2), 1)
    decoded = np.asarray(decode(contents(image.convert(mode), "PNG", transparency=transparent)))
    assert (decoded[2, 1] == 255).all()
    assert decoded.sum() == 3 * 255


def test_jpeg_at_full_colour_resolution() -> None:
    image = picture(4, 2)
    again = decode(encode(image, 95))
    error = np.asarray(again).astype(float) - np.asarray(image)
    assert math.sqrt((error**2).mean()) < 6


UNKNOWN = "not a JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF image"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda raw: raw[: len(raw) // 2], "truncated"),
        (lambda raw: b"", UNKNOWN),
        (lambda raw: b"no image", UNKNOWN),
    ],
)
def test_bad_images_say_why(damage: Callable[[bytes], bytes], says: str) -> None:
    raw = contents(picture(1, width=200, height=200), "JPEG")
    with pytest.raises(BadImageError, match=says) as caught:
        decode(damage(raw))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["EPS", "PPM", "ICO", "TGA", "PCX", "SGI", "DDS", "JPEG2000"])
def test_other_formats_are_refused_unread(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = contents(picture(1), kind)
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *args: pytest.fail("Ghostscript was called"))
    monkeypatch.setattr("subprocess.Popen", lambda *args, **options: pytest.fail("a program was started"))
    with pytest.raises(BadImageError, match=UNKNOWN):
        decode(raw)


def test_a_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = contents(picture(1), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40 * 32 - 1)  # Pillow itself only warns below twice this
    with pytest.raises(BadImageError, match="limit"):
        decode(raw)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(BadImageError, match="DecompressionBomb"):
        decode(raw)


def test_a_missing_file() -> None:
    with pytest.raises(BadImageError, match="No such file"):
        read_bytes(Path("nowhere.jpg"))


def test_fuzzed_files_are_read_or_refused() -> None:
    rng = np.random.default_rng(0)
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"):
        good = contents(picture(1), kind)
        for _ in range(40):
            raw = bytearray(good)
            for at in rng.integers(0, len(raw), 3):
                raw[at] = rng.integers(256)
            with contextlib.suppress(BadImageError):
                assert decode(bytes(raw)).mode == "RGB"


@pytest.mark.parametrize("subsampling", images.SUBSAMPLINGS)
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"quality": 100}, {"quality": 5, "optimize": True}])
def test_simplejpeg_gives_the_pixels_of_pillow(subsampling: str, options: dict[str, Any]) -> None:
    pytest.importorskip("simplejpeg")
    for seed, size in enumerate(((40, 32), (37, 41), (1, 9), (300, 256))):
        raw = contents(picture(seed, seed, *size), "JPEG", subsampling=subsampling, **options)
        assert np.array_equal(decode_jpeg(raw), np.asarray(decode(raw, upright=False)))


def test_what_simplejpeg_leaves_to_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("simplejpeg")
    plain = contents(picture(1), "JPEG")
    others = [contents(picture(1).convert(mode), "JPEG") for mode in ("L", "CMYK")]
    for raw in (*others, contents(picture(1), "PNG"), b"", plain[:2], plain[:200], plain[:-2]):
        assert decode_jpeg(raw) is None
    with monkeypatch.context() as patch:
        patch.setattr(Image, "MAX_IMAGE_PIXELS", 40 * 32 - 1)
        assert decode_jpeg(plain) is None
    monkeypatch.setattr(images, "simplejpeg", None)
    assert decode_jpeg(plain) is None


@VARIANTS
def test_damaged_jpegs_are_judged_as_pillow_judges_them(variants: int) -> None:
    """Where simplejpeg gives pixels, Pillow gives the same."""
    pytest.importorskip("simplejpeg")
    raw, rng = contents(picture(1), "JPEG", subsampling="4:2:0"), np.random.default_rng(7)
    for _ in range(variants):
        damaged = mutate(raw, rng)
        pixels = decode_jpeg(damaged)
        if pixels is not None:
            with contextlib.suppress(BadImageError):  # Pillow also refuses odd headers, which `prepare` never stores
                assert np.array_equal(pixels, np.asarray(decode(damaged, upright=False)))
