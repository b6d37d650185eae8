"""What a set of a user's own images holds: the images, their labels, and the splits that it has already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from epitomic.data.photographs.store import StoreImages, read_index
from epitomic.support.errors import UserError
from epitomic.support.images import SUFFIXES, read_bytes

SPLITS = ("train", "val", "test")
SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
FITS = (
    "class folders, train/ with val/ or test/, a store of `epitomic prepare`, a CSV or Parquet file, or a Hugging Face "
    "data set"
)


class Blobs(Protocol):
    """The bytes of image files, by number."""

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """Returns the name of an image, such as its path."""

    def contents(self, index: int) -> bytes:
        """Reads the bytes of an image file, or raises `BadImageError`."""

    def stamp(self, index: int) -> str:
        """Returns a text that changes when the bytes may have changed, such as size and time of the file."""


@dataclass(frozen=True)
class Listed:
    """Images with their labels.

    Attributes:
        title: Name of the set, such as that of its folder.
        root: Text that identifies the set on this machine.
        blobs: The images.
        labels: Class name of each image.
        splits: Split of each image, one of `SPLITS`; None where the set does not say.
    """

    title: str
    root: str
    blobs: Blobs
    labels: Sequence[str]
    splits: Sequence[str | None]


class Files:
    """Image files.

    Args:
        paths: Their paths.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        """Returns the path."""
        return self.paths[index]

    def contents(self, index: int) -> bytes:
        """Reads the file."""
        return read_bytes(Path(self.paths[index]))

    def stamp(self, index: int) -> str:
        """Returns size and time of the file."""
        return file_stamp(Path(self.paths[index]))


def file_stamp(path: Path) -> str:
    """Returns size and time of a file, or an empty text if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


class StoreFiles:
    """The images of all splits of a prepared store.

    Args:
        parts: The splits.
    """

    def __init__(self, parts: Sequence[StoreImages]) -> None:
        self.parts = parts
        self.places = [(part, index) for part in range(len(parts)) for index in range(len(parts[part]))]

    def __len__(self) -> int:
        return len(self.places)

    def name(self, index: int) -> str:
        """Returns the name of the image in the store."""
        part, place = self.places[index]
        return self.parts[part].name(place)

    def contents(self, index: int) -> bytes:
        """Reads the image, and compares its checksum."""
        part, place = self.places[index]
        return self.parts[part].contents(place)

    def stamp(self, index: int) -> str:
        """Returns the fingerprint of the split and the checksum of the image."""
        part, place = self.places[index]
        return f"{self.parts[part].fingerprint[:16]} {self.parts[part].table.place(place)}"


def list_store(root: Path) -> Listed:
    """Lists a prepared store."""
    splits = [split for split, files in read_index(root).splits.items() if files.shards]
    if "train" not in splits:
        raise UserError(f"{root} has no images of 'train': it has {', '.join(splits) or 'none at all'}")
    parts = [StoreImages(root, split) for split in splits]
    labels = [part.classes[label] for part in parts for label in part.labels.tolist()]
    alone = splits == ["train"]
    given = [
        None if alone else SPLIT_NAMES.get(name) for name, part in zip(splits, parts, strict=True) for _ in part.labels
    ]
    return Listed(root.resolve().name, str(root.resolve()), StoreFiles(parts), labels, given)


def no_images(root: Path) -> UserError:
    """Returns the error for a folder without images."""
    return UserError(f"{root} has no images ({', '.join(SUFFIXES)}): it should have a folder of images for each class")
