"""Makes a few photographs. Each class has its own colour and pattern, so a network can learn them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL", reason="needs Pillow: pip install 'epitomic[images]'")
pytest.importorskip("datasets", reason="needs datasets: pip install 'epitomic[images]'")

from PIL import Image

CLASSES = ("ant", "bee", "cat")


def picture(seed: int, label: int = 0, width: int = 40, height: int = 32) -> Image.Image:
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    wave = np.sin((x if label % 2 else y) * (0.4 + 0.2 * label) + rng.uniform(0, 6))
    color = np.roll([200, 120, 60], label)
    pixels = color * (0.7 + 0.3 * wave[..., None]) + rng.normal(0, 12, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make_folders(
    root: Path, train: int = 8, val: int = 4, classes: tuple[str, ...] = CLASSES, scale: float = 1.0
) -> Path:
    """Makes class folders in ImageNet's layout, with images of several sizes and formats."""
    for split, count in (("train", train), ("val", val)):
        for label, name in enumerate(classes):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                seed = 1000 * label + number + (500 if split == "val" else 0)
                width, height = (int(side * scale) for side in (32 + 4 * (number % 4), 32 + 3 * (number % 3)))
                suffix = ("jpg", "png", "webp")[number % 3]
                picture(seed, label, width, height).save(folder / f"{number:03d}.{suffix}")
    return root
