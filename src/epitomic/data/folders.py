"""Class folders: ``ROOT/CLASS/IMAGE``, in ImageNet's layout ``ROOT/train/CLASS/IMAGE`` and ``ROOT/val/CLASS/IMAGE``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from epitomic.data.pixels import SUFFIXES, decode, resize_short
from epitomic.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Listing:
    """The images of one folder of classes.

    Attributes:
        root: The folder.
        classes: Names of its folders, sorted: the labels count them.
        names: ``CLASS/IMAGE`` of every image, sorted.
        sizes: Of the files, in bytes.
        ignored: What else lies beside the images or the class folders.
    """

    root: Path
    classes: tuple[str, ...]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    ignored: tuple[str, ...] = ()

    @cached_property
    def labels(self) -> Tensor:
        """(N,), int64."""
        numbers = {name: number for number, name in enumerate(self.classes)}
        return torch.tensor([numbers[name.partition("/")[0]] for name in self.names])

    @cached_property
    def fingerprint(self) -> str:
        """Changes when an image is added, removed, renamed or of another size."""
        digest = hashlib.sha256()
        for name, size in zip(self.names, self.sizes, strict=True):
            digest.update(f"{name}\0{size}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()


def list_images(root: Path) -> Listing:
    """All images in the class folders under ``root``.

    Raises:
        UserError: If there are none, or none in some class.
    """
    if not root.is_dir():
        raise UserError(f"no folder {root}: it should have a folder of images for each class")
    classes: list[str] = []
    names: list[str] = []
    sizes: list[int] = []
    ignored = [entry.name for entry in os.scandir(root) if is_image(entry)]
    for folder in sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and entry.name[0] != "."):
        entries = [entry for entry in os.scandir(root / folder) if entry.name[0] != "."]
        files = sorted((e.name, e.stat().st_size) for e in entries if is_image(e))
        ignored.extend(f"{folder}/{e.name}" for e in entries if not is_image(e))
        if not files:
            raise UserError(f"class folder {root / folder} has no image ({', '.join(SUFFIXES)}): fill or remove it")
        classes.append(folder)
        names.extend(f"{folder}/{name}" for name, _ in files)
        sizes.extend(size for _, size in files)
    if not classes:
        loose = any(is_image(entry) for entry in os.scandir(root))
        hint = "its images lie in it directly: sort them into one folder a class" if loose else "it has none"
        raise UserError(f"{root} should have a folder of images for each class, and {hint}")
    return Listing(root, tuple(classes), tuple(names), tuple(sizes), tuple(sorted(ignored)))


def is_image(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file that is called like an image."""
    return entry.name.lower().endswith(SUFFIXES) and entry.name[0] != "." and entry.is_file()


def list_splits(root: Path) -> dict[str, Listing]:
    """The splits that there are of `SPLITS`; a folder of classes without any is all ``train``.

    Raises:
        UserError: If their classes differ, or a folder is not as it should be.
    """
    if not root.is_dir():
        raise UserError(f"no folder {root}: it should have train/CLASS/IMAGE and val/CLASS/IMAGE")
    found = {split: list_images(root / split) for split in SPLITS if (root / split).is_dir()}
    if not found:
        return {"train": list_images(root)}
    check_classes({str(listing.root): listing.classes for listing in found.values()})
    return found


def check_classes(found: dict[str, Sequence[str]]) -> None:
    """An error that names the classes by which these places differ."""
    (first, classes), *others = found.items()
    for place, names in others:
        for here, there, missing in (
            (place, first, sorted(set(classes) - set(names))),
            (first, place, sorted(set(names) - set(classes))),
        ):
            if missing:
                listed = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
                raise UserError(f"{here} has not the classes of {there}: it lacks {listed}")


class FolderImages:
    """The images of class folders, read and resized as they are asked for.

    Args:
        listing: Which.
        size: Their short side becomes this; 0: they are left as they are.
    """

    def __init__(self, listing: Listing, size: int) -> None:
        self.listing, self.size = listing, size
        self.classes, self.labels = listing.classes, listing.labels
        self.fingerprint = hashlib.sha256(f"{listing.fingerprint} {size}".encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.listing.names)

    def name(self, index: int) -> str:
        """For the user, of one image."""
        return str(self.listing.root / self.listing.names[index])

    def read(self, index: int) -> Image:
        """One image; `BadImageError` if it cannot be."""
        image = decode(self.listing.root / self.listing.names[index])
        return resize_short(image, self.size) if self.size else image
