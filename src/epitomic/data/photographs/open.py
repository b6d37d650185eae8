"""Finds and opens photographs: a prepared store, or plain class folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epitomic.data.location import DATA_VARIABLE, cache, data_root
from epitomic.data.photographs.color import ColorStatistics, measure_colors
from epitomic.data.photographs.crops import Photographs
from epitomic.data.photographs.feed import PhotographFeed
from epitomic.data.photographs.folders import SPLITS, FolderImages, check_classes, list_images
from epitomic.data.photographs.loading import ImageSource
from epitomic.data.photographs.store import StoreImages, is_store, read_store_statistics
from epitomic.support.errors import UserError
from epitomic.support.images import need_images
from epitomic.support.options import from_dict

PHOTOGRAPHS = ("imagenet", "imagenette", "tiny_imagenet", "photographs")  # "photographs" is for a user's own


def open_photographs(
    name: str, folder: str | Path | None, config: Photographs, *, batch_size: int, seed: int, workers: int
) -> PhotographFeed:
    """Opens photographs to train on. See `find_photographs` for ``folder`` and `PhotographFeed` for the rest."""
    need_images()
    root = find_photographs(name, folder)
    train, val = (open_split(root, split, config.size) for split in ("train", "val"))
    check_classes({f"{root} (train)": train.classes, f"{root} (val)": val.classes})
    check_crop("--crop", config.crop, train.size, root)
    statistics = read_statistics(root, train, workers)
    return PhotographFeed(name, train, val, statistics, config, batch_size=batch_size, seed=seed, workers=workers)


def find_photographs(name: str, folder: str | Path | None = None) -> Path:
    """Finds the folder of an image set: ``folder`` (or `data_root`) itself, or NAME, NAME-... or NAME_... inside it."""
    root = data_root(folder)
    candidates = [root, root / name, *sorted(root.glob(f"{name}[-_0-9]*"))]
    for path in candidates:
        if is_store(path) or (path / "train").is_dir():
            return path
    raise UserError(
        f"no images of {name} in {root}: set --data-dir or {DATA_VARIABLE} to a folder with train/CLASS/IMAGE and "
        "val/CLASS/IMAGE, or to a store made by `epitomic prepare`"
    )


def open_validation(name: str, folder: str | Path | None, config: dict[str, Any], path: Path) -> ImageSource:
    """Opens the test images of a network, and checks them against ``config``, which was read from ``path``."""
    need_images()
    root = find_photographs(name, folder)
    settings = from_dict(Photographs, config.get("photographs", vars(Photographs())), str(path))
    source = open_split(root, "val", settings.size)
    check_crop(f"{path}: image_size", int(config.get("image_size", 0)), source.size, root)
    check_classes({str(path): list(map(str, config.get("classes", ()))), str(root): source.classes})
    return source


def open_split(root: Path, split: str | None, size: int) -> ImageSource:
    """Opens one split of a store or of class folders. None means train, or ``root`` itself if it has no splits."""
    if is_store(root):
        return StoreImages(root, split or "train")
    if split is None and any((root / name).is_dir() for name in SPLITS):
        split = "train"
    return FolderImages(list_images(root / split if split else root), size)


def check_crop(setting: str, crop: int, size: int, where: str | Path) -> None:
    """Raises an error that names the setting unless crops fit into the images."""
    if crop > size:
        raise UserError(f"{setting} {crop} does not fit: the short side of the images in {where} is {size} pixels")


def read_statistics(root: Path, train: ImageSource, workers: int) -> ColorStatistics:
    """Returns the colour statistics of a training set; those of plain folders are kept in the user's cache."""
    if isinstance(train, StoreImages):
        return read_store_statistics(root, train.fingerprint)
    path = cache() / "statistics" / f"{train.fingerprint}.json"
    if path.is_file():
        return ColorStatistics.load(path, train.fingerprint)
    statistics = measure_colors(train, workers)
    statistics.save(path)
    return statistics
