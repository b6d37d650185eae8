"""Class folders: ``ROOT/CLASS/IMAGE``, in ImageNet's layout ``ROOT/train/CLASS/IMAGE`` and ``ROOT/val/CLASS/IMAGE``."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from epitomic.support.errors import UserError
from epitomic.support.images import SUFFIXES, decode, read_bytes, resize_short, to_array

if TYPE_CHECKING:
    from PIL.Image import Image

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Listing:
    """The image files in a folder of class folders."""

    root: Path  # folder that holds the class folders
    classes: tuple[str, ...]  # names of the class folders, sorted; a label is a place in this list
    names: tuple[str, ...]  # CLASS/IMAGE of every image, sorted
    sizes: tuple[int, ...]  # size of each file in bytes
    ignored: tuple[str, ...] = ()  # files and folders that are not CLASS/IMAGE

    @cached_property
    def labels(self) -> Tensor:
        """Class number of each image, (N,), int64."""
        numbers = {name: number for number, name in enumerate(self.classes)}
        return torch.tensor([numbers[name.partition("/")[0]] for name in self.names])

    @cached_property
    def fingerprint(self) -> str:
        """Text that changes when an image is added, removed or renamed, or when a file changes its size."""
        digest = hashlib.sha256()
        for name, size in zip(self.names, self.sizes, strict=True):
            digest.update(f"{name}\0{size}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()


def list_images(root: Path, tell: Callable[[int], object] = lambda count: None) -> Listing:
    """Lists the images in the class folders of ``root``, and tells their number after each folder.

    Raises:
        UserError: If there is no class folder, or one has no image.
    """
    if not root.is_dir():
        raise UserError(f"no folder {root}: it should have CLASS/IMAGE, or train/CLASS/IMAGE and val/CLASS/IMAGE")
    classes: list[str] = []
    names: list[str] = []
    sizes: list[int] = []
    ignored = [entry.name for entry in os.scandir(root) if is_image(entry)]
    for folder in sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and entry.name[0] != "."):
        if any("\ud800" <= character <= "\udfff" for character in folder):
            shown = os.fsencode(folder).decode(errors="backslashreplace")
            raise UserError(f"class folder {root / shown} has a name that is not UTF-8: rename it")
        entries = [entry for entry in os.scandir(root / folder) if entry.name[0] != "."]
        files = sorted((e.name, e.stat().st_size) for e in entries if is_image(e))
        ignored.extend(f"{folder}/{e.name}" for e in entries if not is_image(e))
        if not files:
            raise UserError(f"class folder {root / folder} has no image ({', '.join(SUFFIXES)}): fill or remove it")
        classes.append(folder)
        names.extend(f"{folder}/{name}" for name, _ in files)
        sizes.extend(size for _, size in files)
        tell(len(names))
    if not classes:
        hint = "its images lie in it directly: sort them into one folder per class" if ignored else "it has none"
        raise UserError(f"{root} should have a folder of images for each class, but {hint}")
    return Listing(root, tuple(classes), tuple(names), tuple(sizes), tuple(sorted(ignored)))


def is_image(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a file with the name of an image."""
    return entry.name.lower().endswith(SUFFIXES) and entry.name[0] != "." and entry.is_file()


def list_splits(root: Path, tell: Callable[[int], object] = lambda count: None) -> dict[str, Listing]:
    """Lists the images of each of `SPLITS` that ``root`` has; class folders without a split count as ``train``.

    It tells the number of images after each folder of a split.

    Raises:
        UserError: If the splits have different classes, or a folder has no images.
    """
    found = {split: list_images(root / split, tell) for split in SPLITS if (root / split).is_dir()}
    if not found:
        return {"train": list_images(root, tell)}
    check_classes({str(listing.root): listing.classes for listing in found.values()})
    return found


def check_classes(found: dict[str, Sequence[str]]) -> None:
    """Raises an error that names the missing classes unless all places have the same classes."""
    for (there, classes), (here, names) in itertools.permutations(found.items(), 2):
        missing = sorted(set(classes) - set(names))
        if missing:
            listed = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            raise UserError(f"{here} does not have the classes of {there}: it lacks {listed}")


class FolderImages:
    """The images of class folders, read and resized when they are asked for.

    Args:
        listing: The image files.
        size: Short side in pixels that images are resized to; 0 leaves them as they are.
    """

    def __init__(self, listing: Listing, size: int) -> None:
        self.listing, self.size = listing, size
        self.classes, self.labels = listing.classes, listing.labels
        self.fingerprint = hashlib.sha256(f"{listing.fingerprint} {size}".encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.listing.names)

    def name(self, index: int) -> str:
        """Returns the path of an image."""
        return str(self.listing.root / self.listing.names[index])

    def read(self, index: int) -> Image:
        """Reads an image, or raises `BadImageError`."""
        image = decode(read_bytes(self.listing.root / self.listing.names[index]))
        return resize_short(image, self.size) if self.size else image

    def pixels(self, index: int) -> Any:
        """Reads an image as an array, (H, W, 3) uint8, or raises `BadImageError`."""
        return to_array(self.read(index))
