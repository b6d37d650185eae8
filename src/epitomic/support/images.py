"""Decodes, resizes and encodes one image, with Pillow or simplejpeg. No other module decodes image files.

The rule: a file is JPEG, PNG, WebP, GIF (its first frame), BMP, TIFF or AVIF, told by its contents and not by its name
(one of ImageNet's JPEG files is a PNG). Pillow tries no other reader, so none that starts a program is ever reached.
Pillow's limit on the number of pixels, a guard against decompression bombs, is an error and not a warning. Orientation
tags are followed, 16-bit values are divided by 256, and transparent pixels are shown on white.
"""

from __future__ import annotations

import importlib.util
import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epitomic.support.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

try:
    import simplejpeg
except ImportError:
    simplejpeg = None

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")  # Pillow's names
SUBSAMPLINGS = ("4:4:4", "4:2:2", "4:2:0")  # colours of JPEG at full, half and a quarter of the resolution
LONGEST_SIDE = 65500  # pixels; a JPEG file cannot hold more
ORIENTATION = 0x0112  # number of the EXIF tag
# How Pillow turns an image upright, by the value of that tag; 1 is upright already.
TURNS = {
    **{2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM"},
    **{5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"},
}


class BadImageError(Exception):
    """An image that cannot be read; the message says why."""


def need_images(*, writing: bool = False) -> None:
    """Raises an error that says what to install if a package that reads or writes photographs is missing."""
    for package in ("PIL", "datasets") if writing else ("PIL",):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"photographs need {package}: pip install 'epitomic[images]'")


def read_bytes(path: Path) -> bytes:
    """Reads a file, or raises `BadImageError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadImageError(error.strerror or type(error).__name__) from None


def decode(contents: bytes, *, upright: bool = True) -> Image:
    """Decodes the bytes of an image file as RGB, whether it is grey, palette, CMYK, transparent or 16 bits deep.

    Args:
        contents: The bytes of the file.
        upright: Whether to follow an orientation tag. Stores hold images that are upright already.

    Raises:
        BadImageError: If the image is truncated, damaged, too large or of another format.
    """
    from PIL import Image as Pillow

    with _opened(contents) as image:
        limit = Pillow.MAX_IMAGE_PIXELS
        if limit and image.width * image.height > limit:
            raise BadImageError(f"{image.width} x {image.height} pixels are more than Pillow's limit of {limit}")
        image.load()
        turn = TURNS.get(_orientation(image)) if upright else None
        rgb = to_rgb(image)
        return rgb.transpose(Pillow.Transpose[turn]) if turn else rgb


def decode_jpeg(contents: bytes) -> Any:
    """Decodes a JPEG file by simplejpeg, which is faster than Pillow; returns (H, W, 3) uint8, or None.

    None means that `decode` must do it: simplejpeg is not installed, or the file is no plain JPEG in colour, or is
    damaged in any way. So limits and errors are those of `decode`, and the pixels are the same to the bit.
    """
    if simplejpeg is None or not contents.startswith(b"\xff\xd8"):
        return None
    from PIL import Image as Pillow

    try:
        height, width, colors, _ = simplejpeg.decode_jpeg_header(contents)
        if colors != "YCbCr" or height * width > (Pillow.MAX_IMAGE_PIXELS or math.inf):
            return None
        return simplejpeg.decode_jpeg(contents)  # strict: damage that libjpeg would gloss over is an error
    except ValueError:
        return None


def is_plain(contents: bytes) -> bool:
    """Whether a file is JPEG, PNG or WebP and has no orientation tag to follow."""
    with _opened(contents) as image:
        return image.format in ("JPEG", "MPO", "PNG", "WEBP") and _orientation(image) not in TURNS


@contextmanager
def _opened(contents: bytes) -> Iterator[Image]:
    """Opens an image and turns whatever Pillow raises into `BadImageError`."""
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd metadata, and about the limit, which is an error here
            with Pillow.open(io.BytesIO(contents), formats=FORMATS) as image:
                yield image
    except BadImageError:
        raise
    except UnidentifiedImageError:
        raise BadImageError("it is not a JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF image") from None
    except Exception as error:  # damaged files raise errors of many kinds
        raise BadImageError(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from None


def _orientation(image: Image) -> int:
    try:
        return image.getexif().get(ORIENTATION, 1)
    except Exception:  # damaged metadata says nothing, and the pixels may be sound
        return 1


def to_rgb(image: Image) -> Image:
    """Converts an image of any mode to RGB; transparent pixels are shown on white."""
    from PIL import Image as Pillow

    if image.mode == "RGB" and "transparency" not in image.info:
        return image.copy() if image.readonly else image
    if image.mode.startswith("I;16"):
        return Pillow.fromarray((to_array(image) >> 8).astype("uint8")).convert("RGB")
    if image.mode in ("I", "F"):
        raise BadImageError(f"its pixels are 32-bit or signed (mode {image.mode}): save it with 8 or 16 bits")
    if image.has_transparency_data:
        white = Pillow.new("RGBA", image.size, "white")
        return Pillow.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def resize_short(image: Image, size: int) -> Image:
    """Resizes an image to a short side of ``size`` pixels. It keeps the aspect and crops nothing.

    Interpolation is bilinear, with antialiasing when the image shrinks.

    Raises:
        BadImageError: If the image is so long and thin that it would become too large.
    """
    from PIL import Image as Pillow

    short, limit = min(image.size), Pillow.MAX_IMAGE_PIXELS
    if short == size:
        return image
    width, height = (size if side == short else round(side * size / short) for side in image.size)
    if max(width, height) > LONGEST_SIDE or (limit and width * height > limit):
        raise BadImageError(
            f"{image.width} x {image.height} pixels would become {width} x {height}, more than {LONGEST_SIDE} on a "
            f"side or than Pillow's limit of {limit}"
        )
    return image.resize((width, height), Pillow.Resampling.BILINEAR)


def resize_square(image: Image | Any, size: int) -> Image:
    """Resizes an image, or its pixels, (H, W, 3) uint8, to ``size`` x ``size`` pixels, whatever its aspect."""
    from PIL import Image as Pillow

    if hasattr(image, "shape"):
        image = Pillow.fromarray(image)
    return image.resize((size, size), Pillow.Resampling.BILINEAR)


def encode(image: Image, quality: int, subsampling: str = "4:4:4") -> bytes:
    """Encodes an image as JPEG; ``subsampling`` is one of `SUBSAMPLINGS`.

    Raises:
        BadImageError: If JPEG cannot hold the image.
    """
    file = io.BytesIO()
    try:
        image.save(file, "JPEG", quality=quality, subsampling=subsampling)
    except OSError as error:
        raise BadImageError(f"cannot be written as JPEG: {error}") from None
    return file.getvalue()


def to_array(image: Image) -> Any:
    """Returns the pixels as a NumPy array, (H, W, 3) uint8 for RGB."""
    import numpy as np

    return np.asarray(image)
