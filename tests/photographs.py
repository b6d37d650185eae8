"""Makes a few photographs. Each class has its own colour and pattern, so a network can learn them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

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


def as_format_1(store: Path, path: Path) -> Path:
    """Copies a store as version 0.1 wrote it: the same shards, no tables, and no checksum but those in the shards."""
    shutil.copytree(store, path, ignore=shutil.ignore_patterns("*.safetensors"))

    def rewrite(name: str, **changes: Any) -> dict[str, Any]:
        values = {**json.loads((path / name).read_text()), **changes}
        values.pop("sha256", None)
        (path / name).write_text(json.dumps(values))
        return values

    index = json.loads((path / "index.json").read_text())
    splits = {split: files["shards"] for split, files in index["splits"].items()}
    rewrite("index.json", format=1, splits=splits)
    rewrite("plan.json", format=1)
    for shards in splits.values():
        for shard in shards:
            rewrite("records/" + shard["file"].replace(".arrow", ".json"), images=shard["images"])
    return path


class Format1Images:
    """Reads a split as version 0.1 did: a memory map of the shards through ``datasets``."""

    def __init__(self, store: Path, split: str) -> None:
        import torch
        from datasets import Dataset, concatenate_datasets

        index = json.loads((store / "index.json").read_text())
        self.classes, self.size, self.fingerprint = tuple(index["classes"]), index["size"], "format 1"
        parts = [Dataset.from_file(str(path)) for path in sorted((store / split).glob("*.arrow"))]
        self.table = concatenate_datasets(parts).with_format("arrow")
        self.labels = torch.tensor(self.table.data.column("label").to_pylist())

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        return str(self.table[index]["name"][0].as_py())

    def read(self, index: int) -> Image.Image:
        import io

        return Image.open(io.BytesIO(self.table[index]["image"][0].as_py()["bytes"])).convert("RGB")

    def pixels(self, index: int) -> Any:
        return np.asarray(self.read(index))
