"""Class folders of a user's own: ``ROOT/CLASS/...`` or ``ROOT/train/CLASS/...`` with ``val`` and ``test`` beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from epitomic.data.own.listing import FITS, SPLIT_NAMES, Files, Listed, no_images
from epitomic.data.photographs.folders import is_image
from epitomic.support.errors import UserError


def list_folders(root: Path) -> Listed:
    """Lists the images in class folders, with all folders below them.

    Raises:
        UserError: If there are no images, a class folder is empty, or images lie outside the class folders.
    """
    found = {name: root / name for name in _folders(root) if name.lower() in SPLIT_NAMES}
    splits = {path: SPLIT_NAMES[name.lower()] for name, path in found.items()}
    if "train" not in splits.values() or len(splits) != len(_folders(root)):
        splits = {}  # a class may be called "test"
    paths: list[str] = []
    labels: list[str] = []
    given: list[str | None] = []
    for folder, split in splits.items() or {root: None}.items():
        for label, images in _classes(folder):
            paths += images
            labels += [label] * len(images)
            given += [split] * len(images)
    return Listed(root.resolve().name, str(root.resolve()), Files(paths), labels, given)


def _folders(root: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))


def _classes(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields each class and the paths of its images."""
    names = _folders(root)
    if not names:
        if any(is_image(entry) for entry in os.scandir(root)):
            raise UserError(f"the images of {root} lie in it directly: sort them into one folder for each class")
        raise no_images(root)
    found = {name: sorted(_images(str(root / name))) for name in names}
    if not any(found.values()):
        raise no_images(root)
    for name, images in found.items():
        if not images:
            raise UserError(f"class folder {root / name} has no image: fill or remove it ({root} may be {FITS})")
        yield name, images


def _images(folder: str) -> Iterator[str]:
    for entry in os.scandir(folder):
        if is_image(entry):
            yield entry.path
        elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield from _images(entry.path)
