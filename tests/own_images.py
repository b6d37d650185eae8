"""Folders of a user's own images, with every oddity that such folders have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL", reason="needs Pillow: pip install 'epitomic[images]'")

from PIL import Image

from tests.photographs import picture

CLASSES = ("ant", "bee")


def make_own(root: Path, count: int = 12, classes: tuple[str, ...] = CLASSES, side: int = 48) -> Path:
    """Makes class folders without splits."""
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(count):
            picture(1000 * label + number, label, side + number, side).save(root / name / f"{number:03d}.png")
    return root


def make_odd(root: Path) -> dict[str, int]:
    """Makes class folders with every kind of image that people have.

    Returns:
        Number of images of each class that can be read. One file in ``ant`` cannot.
    """
    for label, (name, count) in enumerate({"ant": 80, "Żółw und 猫": 10, "three": 3}.items()):
        (root / name).mkdir(parents=True)
        for number in range(count):
            picture(1000 * label + number, label, 48 + number % 20, 48).save(root / name / f"{number:03d}.png")
    odd, other = root / "ant", root / "Żółw und 猫"
    plain = picture(77, 0, 60, 50)
    plain.convert("L").save(odd / "grey.jpg")
    plain.convert("P").save(odd / "palette.gif")
    plain.convert("RGBA").save(odd / "alpha channel.png")
    plain.convert("CMYK").save(odd / "cmyk.JPG")
    Image.fromarray(np.asarray(plain.convert("L")).astype(np.uint16) * 257).save(odd / "sixteen bits.tiff")
    exif = Image.Exif()
    exif[0x0112] = 6
    plain.save(other / "turned é ü 猫.JPEG", exif=exif)
    plain.save(other / "LOUD.PNG")
    picture(5, 1).save(other / "one.webp")
    (other / "deeper").mkdir()
    picture(6, 1).save(other / "deeper" / "two.bmp")
    for copy in (other / "copy of LOUD.PNG", odd / "in the wrong class.PNG"):
        copy.write_bytes((other / "LOUD.PNG").read_bytes())
    (odd / "broken.jpg").write_bytes(b"no image at all")
    (odd / ".hidden.png").write_bytes(b"not an image")
    (odd / "notes.txt").write_text("not an image")
    return {"ant": 86, "three": 3, "Żółw und 猫": 15}
