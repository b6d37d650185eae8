"""Finds and opens photographs: a prepared store, or plain class folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from epitomic.data.color import ColorStatistics, ColorSums
from epitomic.data.crops import Photographs
from epitomic.data.folders import SPLITS, FolderImages, check_classes, list_images
from epitomic.data.photographs import PhotographFeed
from epitomic.data.pixels import BadImageError, need_images
from epitomic.data.sets import DATA_VARIABLE, data_root
from epitomic.data.store import STATISTICS, StoreImages, is_store
from epitomic.data.views import ImageSource, load_in_order
from epitomic.errors import UserError
from epitomic.options import from_dict

PHOTOGRAPHS = ("imagenet", "imagenette", "photographs")  # names of sets; the last one is anybody's own
CHUNK = 64  # images whose colours are summed at a time


def open_photographs(
    name: str, folder: str | Path | None, config: Photographs, *, batch_size: int, seed: int, workers: int
) -> PhotographFeed:
    """A set to train on.

    Args:
        name: Of the set.
        folder: See `find_photographs`.
        config: What to do to the images.
        batch_size: Of the global batch.
        seed: Of the run.
        workers: Processes that read images.
    """
    need_images()
    root = find_photographs(name, folder)
    train, val = (open_split(root, split, config.size) for split in ("train", "val"))
    check_classes({f"{root} (train)": train.classes, f"{root} (val)": val.classes})
    check_crop(config.crop, train.size)
    statistics = read_statistics(root, train, workers)
    return PhotographFeed(name, train, val, statistics, config, batch_size=batch_size, seed=seed, workers=workers)


def find_photographs(name: str, folder: str | Path | None = None) -> Path:
    """The folder of a set: ``folder`` (or `sets.data_root`) itself, or the one in it that is called after the set."""
    root = data_root(folder)
    candidates = [root, root / name, *sorted(root.glob(f"{name}[-_0-9]*"))]
    for path in candidates:
        if is_store(path) or (path / "train").is_dir():
            return path
    raise UserError(
        f"no images of {name} in {root}: name a folder with train/CLASS/IMAGE and val/CLASS/IMAGE, or what "
        f"`epitomic prepare` made of one, with --data-dir or {DATA_VARIABLE}"
    )


def open_validation(name: str, folder: str | Path | None, config: dict[str, Any], path: Path) -> ImageSource:
    """The images that a network is tested on, by its config.json at ``path``, which must fit them."""
    need_images()
    root = find_photographs(name, folder)
    settings = from_dict(Photographs, config.get("photographs", vars(Photographs())), str(path))
    source = open_split(root, "val", settings.size)
    check_crop(int(config.get("image_size", 0)), source.size)
    check_classes({str(path): list(map(str, config.get("classes", ()))), str(root): source.classes})
    return source


def open_split(root: Path, split: str | None, size: int) -> ImageSource:
    """One split of a store, or of plain folders; None: the classes are in ``root`` itself, or in its ``train``."""
    if is_store(root):
        return StoreImages(root, split or "train")
    if split is None and any((root / name).is_dir() for name in SPLITS):
        split = "train"
    return FolderImages(list_images(root / split if split else root), size)


def check_crop(crop: int, size: int) -> None:
    """An error unless crops fit into images."""
    if crop > size:
        raise UserError(f"--crop {crop} does not fit into images with a short side of {size}: it must be at most that")


def read_statistics(root: Path, train: ImageSource, workers: int) -> ColorStatistics:
    """The colours of a training set: a store has them; those of plain folders are kept in the user's cache."""
    if isinstance(train, StoreImages):
        return ColorStatistics.load(root / STATISTICS, train.fingerprint)
    from pooch import os_cache

    path = Path(os_cache("epitomic")) / "statistics" / f"{train.fingerprint}.json"
    if path.is_file():
        return ColorStatistics.load(path, train.fingerprint)
    statistics = measure_colors(train, workers)
    statistics.save(path)
    return statistics


def measure_colors(source: ImageSource, workers: int) -> ColorStatistics:
    """Looks at every pixel of every image that can be read."""
    sums = ColorSums()
    for part in load_in_order(_Sums(source), workers):
        sums.merge(part)
    if not sums.pixels:
        raise UserError(f"no image can be read, such as {source.name(0)}")
    return sums.statistics(source.fingerprint)


class _Sums(Dataset[Any]):
    """Of a few images at a time."""

    def __init__(self, source: ImageSource) -> None:
        self.source, self.parts = source, torch.arange(len(source)).split(CHUNK)

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, number: int) -> ColorSums:
        sums = ColorSums()
        for sample in self.parts[number].tolist():
            try:
                sums.add(self.source.read(sample))
            except BadImageError:
                continue  # it will be met again, and told of then
        return sums


def default_workers() -> int:
    """Half of the cores: the other half has the network to compute, or a GPU to feed."""
    return max(1, min(8, (os.cpu_count() or 2) // 2))
