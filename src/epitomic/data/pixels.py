"""One photograph: from a file's bytes to RGB pixels of the right size, with Pillow.

Only JPEG, PNG and WebP are read, told by their contents and not by their names (one of ImageNet's JPEG files is a PNG).
Nothing else is tried, so no reader that starts other programs is ever reached, and Pillow's limit on the number of
pixels (its guard against decompression bombs) is an error here, not a warning. Orientation tags are not followed, as in
the software of the paper's time.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epitomic.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
FORMATS = ("JPEG", "PNG", "WEBP")
LONGEST = 65500  # pixels of a side, of a JPEG file


class BadImageError(Exception):
    """An image that cannot be read; the message says why."""


def need_images() -> None:
    """An error that says what to install, where Pillow or datasets is missing."""
    try:
        import datasets  # noqa: F401
        import PIL  # noqa: F401
    except ImportError as error:
        raise UserError(f"photographs need {error.name}: pip install 'epitomic[images]'") from None


def decode(source: Path | bytes) -> Image:
    """An image as RGB, whatever it was: grey, palette, CMYK, transparent (over white) or 16 bits deep.

    Raises:
        BadImageError: If it is truncated, damaged, too large or of another kind.
    """
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    limit = Pillow.MAX_IMAGE_PIXELS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata; and the limit, which is an error below
            with Pillow.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
                if limit and image.width * image.height > limit:
                    raise BadImageError(
                        f"{image.width} x {image.height} pixels are more than Pillow's limit of {limit}"
                    )
                image.load()
                return _to_rgb(image)
    except BadImageError:
        raise
    except UnidentifiedImageError:
        raise BadImageError("neither JPEG nor PNG nor WebP") from None
    except Exception as error:  # damaged files bring out errors of many kinds
        raise BadImageError(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from None


def _to_rgb(image: Image) -> Image:
    from PIL import Image as Pillow

    if image.mode == "RGB":
        return image.copy() if image.readonly else image
    if image.mode.startswith(("I", "F")):  # 16 bits a pixel, in Pillow's wider modes
        return image.convert("I").point(lambda value: value * (1 / 256)).convert("L").convert("RGB")
    if "A" in image.getbands() or "transparency" in image.info:
        transparent = image.convert("RGBA")
        return Pillow.alpha_composite(Pillow.new("RGBA", image.size, "white"), transparent).convert("RGB")
    return image.convert("RGB")


def resize_short(image: Image, size: int) -> Image:
    """The short side made ``size`` pixels, the aspect kept, nothing cropped. Bilinear, antialiased when it shrinks.

    Raises:
        BadImageError: If the image is so long and thin that it would become too large.
    """
    from PIL import Image as Pillow

    short, limit = min(image.size), Pillow.MAX_IMAGE_PIXELS
    if short == size:
        return image
    width, height = (size if side == short else round(side * size / short) for side in image.size)
    if max(width, height) > LONGEST or (limit and width * height > limit):
        raise BadImageError(
            f"{image.width} x {image.height} pixels would become {width} x {height}, more than {LONGEST} on a side or "
            f"than Pillow's limit of {limit}"
        )
    return image.resize((width, height), Pillow.Resampling.BILINEAR)


def resize_square(image: Image, size: int) -> Image:
    """``size`` x ``size`` pixels, the aspect not kept."""
    from PIL import Image as Pillow

    return image.resize((size, size), Pillow.Resampling.BILINEAR)


def encode(image: Image, quality: int) -> bytes:
    """As JPEG, colour at full resolution.

    Raises:
        BadImageError: If it cannot be.
    """
    file = io.BytesIO()
    try:
        image.save(file, "JPEG", quality=quality, subsampling=0)
    except OSError as error:
        raise BadImageError(f"cannot be written as JPEG: {error}") from None
    return file.getvalue()


def to_array(image: Image) -> Any:
    """(H, W, 3), uint8."""
    import numpy as np

    return np.asarray(image)
