"""A user's own images, split and ready to be read: as photographs, or as a small set in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from epitomic.data.feed import BAD_SHARE
from epitomic.data.own.facts import CHUNK, ImageFacts, gather
from epitomic.data.own.folders import list_folders
from epitomic.data.own.hub import PREFIX, is_hub_name, is_saved, list_named, list_saved
from epitomic.data.own.listing import FITS, SPLITS, Blobs, Listed, list_store, no_images
from epitomic.data.own.notes import contradictions, left_out, named
from epitomic.data.own.splits import assign
from epitomic.data.own.tables import list_csv, list_parquet
from epitomic.data.photographs.loading import load_in_order
from epitomic.data.photographs.store import is_store
from epitomic.data.small.splits import ImageSet, Split
from epitomic.models.preprocessing import middle_square
from epitomic.support.console import Progress
from epitomic.support.errors import UserError
from epitomic.support.images import BadImageError, decode, need_images, resize_short, to_array

if TYPE_CHECKING:
    from PIL.Image import Image

MEMORY = 2 << 30  # bytes of resized images that are kept in memory


@dataclass(frozen=True)
class Place:
    """Where a user's own images are.

    Attributes:
        source: Path of a folder or file, or name of a data set on the hub.
        image_column: Column of the images in a table; None finds it.
        label_column: Column of the labels in a table; None finds it.
    """

    source: str
    image_column: str | None = None
    label_column: str | None = None


def is_own(word: str) -> bool:
    """Whether a word of the command line means a user's own images, and not the name of a recipe."""
    return Path(word).expanduser().exists() or is_hub_name(word) or "/" in word


def own_name(word: str) -> str:
    """Returns the name of a set: that of its folder, of its file without the ending, or of the data set.

    >>> own_name("my/pictures/"), own_name("table.csv"), own_name("hf://user/cats")
    ('pictures', 'table', 'cats')
    """
    path = Path(word.removeprefix(PREFIX)).expanduser()
    name = path.name if path.is_dir() or not path.suffix else path.stem
    return name or path.resolve().name or "images"


def absolute(word: str) -> str:
    """Returns the whole path of a folder or file; the name of a data set stays as it is."""
    path = Path(word).expanduser()
    return str(path.resolve()) if path.exists() else word


def list_own(place: Place) -> Listed:
    """Lists the images of a folder, a table or a data set.

    Raises:
        UserError: If there is no such set, or it holds no labelled images.
    """
    path, columns = Path(place.source).expanduser(), (place.image_column, place.label_column)
    if not path.exists():
        if not is_hub_name(place.source):
            raise UserError(f"no folder or file {place.source}: it should be {FITS}")
        return list_named(place.source, *columns)
    if path.is_file():
        kinds = {".csv": list_csv, ".tsv": list_csv, ".parquet": list_parquet}
        if path.suffix.lower() not in kinds:
            raise UserError(f"{path} is neither a CSV nor a Parquet file: own images are {FITS}")
        listed = kinds[path.suffix.lower()](path, *columns)
    elif is_store(path):
        listed = list_store(path)
    elif is_saved(path):
        listed = list_saved(path, *columns)
    else:
        listed = list_folders(path)
    if not len(listed.blobs):
        raise no_images(path)
    return listed


@dataclass(frozen=True)
class OwnSet:
    """A user's own images, split into train, val and test.

    Attributes:
        title: Name of the set.
        classes: Class names, sorted; a label is a place in this list.
        blobs: The image files.
        labels: Class number of each image.
        facts: What is known of each image.
        parts: Numbers of the images of each split; images that cannot be read are in none.
        bad: Images that cannot be read: name and reason.
        notes: Lines about the split that the user should see.
    """

    title: str
    classes: tuple[str, ...]
    blobs: Blobs
    labels: tuple[int, ...]
    facts: tuple[ImageFacts, ...]
    parts: dict[str, list[int]]
    bad: dict[str, str]
    notes: tuple[str, ...]

    @property
    def short_side(self) -> int:
        """Median of the images' short sides, in pixels."""
        return int(median(min(self.facts[i].width, self.facts[i].height) for i in self.parts["train"]))

    @property
    def grey(self) -> bool:
        """Whether all images are small and without colour."""
        return all(self.facts[i].grey for i in self.parts["train"])

    def fingerprint(self, *splits: str) -> str:
        """Returns a text that changes with the images of these splits, their labels or their classes."""
        digest = hashlib.sha256(repr(self.classes).encode(errors="surrogateescape"))
        for split in splits:
            for i in self.parts[split]:
                digest.update(f"{split} {self.facts[i].sha256} {self.labels[i]}\n".encode())
        return digest.hexdigest()

    def photographs(self, split: str, size: int) -> OwnPhotographs:
        """Returns the images of a split, resized to a short side of ``size`` pixels when they are read."""
        return OwnPhotographs(self, split, size)

    def small(self, side: int, channels: int, *, quiet: bool = False) -> ImageSet:
        """Reads all images into memory: their middle squares, ``side`` x ``side``, grey or in colour."""
        with Progress(sum(map(len, self.parts.values())), unit="images", quiet=quiet) as progress:
            splits = {name: self._read_small(name, side, channels, progress) for name in SPLITS}
        mark = f"{self.fingerprint(*SPLITS)} {side} {channels}"
        return ImageSet(self.title, self.classes, splits["train"], splits["test"], splits["val"], mark)

    def _read_small(self, split: str, side: int, channels: int, progress: Progress) -> Split:
        numbers = self.parts[split]
        images = torch.zeros(len(numbers), side, side, channels, dtype=torch.uint8)
        for place, number in enumerate(numbers):
            try:
                image = decode(self.blobs.contents(number))
            except BadImageError as error:
                raise UserError(f"{self.blobs.name(number)} could be read a moment ago, now: {error}") from None
            square = middle_square(image if channels == 3 else image.convert("L"), side)
            images[place] = torch.from_numpy(to_array(square).reshape(side, side, channels).copy())
            progress.update(f"reading {split} image {place + 1:,} of {len(numbers):,}", progress.done + 1)
        labels = torch.tensor([self.labels[number] for number in numbers], dtype=torch.long)
        return Split(images.permute(0, 3, 1, 2).contiguous(), labels)


def open_own(place: Place, workers: int = 0, *, quiet: bool = True) -> OwnSet:
    """Lists, reads and splits a user's own images.

    Raises:
        UserError: If there are none, more than 1 % cannot be read, or a class has too few.
    """
    need_images()
    listed = list_own(place)
    facts = gather(listed, workers, quiet=quiet)
    bad = {listed.blobs.name(i): fact.problem for i, fact in enumerate(facts) if fact.problem is not None}
    if len(bad) > BAD_SHARE * len(facts):
        raise UserError(
            f"{len(bad)} of {len(facts)} images cannot be read, more than {100 * BAD_SHARE:g} %: {named(bad)}"
        )
    good = [i for i, fact in enumerate(facts) if fact.problem is None]
    splits, notes = assign(
        [facts[i].sha256 for i in good], [listed.labels[i] for i in good], [listed.splits[i] for i in good]
    )
    notes = [*left_out(bad), *contradictions(listed, facts, good), *notes]
    classes = tuple(sorted({listed.labels[i] for i in good}))
    numbers = {name: number for number, name in enumerate(classes)}
    parts = {name: [i for i, split in zip(good, splits, strict=True) if split == name] for name in SPLITS}
    labels = tuple(numbers.get(label, -1) for label in listed.labels)
    return OwnSet(listed.title, classes, listed.blobs, labels, tuple(facts), parts, bad, tuple(notes))


class OwnPhotographs:
    """The images of one split, read and resized when they are asked for.

    Args:
        images: All images.
        split: Name of the split.
        size: Short side in pixels that images are resized to.
    """

    def __init__(self, images: OwnSet, split: str, size: int) -> None:
        self.blobs, self.numbers, self.size = images.blobs, images.parts[split], size
        self.classes = images.classes
        self.labels = torch.tensor([images.labels[i] for i in self.numbers], dtype=torch.long)
        self.fingerprint = hashlib.sha256(f"{images.fingerprint(split)} {size}".encode()).hexdigest()
        self.bytes = sum(_resized_bytes(images.facts[i], size) for i in self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def name(self, index: int) -> str:
        """Returns the path of an image."""
        return self.blobs.name(self.numbers[index])

    def read(self, index: int) -> Image:
        """Reads an image, or raises `BadImageError`."""
        return resize_short(decode(self.blobs.contents(self.numbers[index])), self.size)

    def pixels(self, index: int) -> Any:
        """Reads an image as an array, (H, W, 3) uint8, or raises `BadImageError`."""
        return to_array(self.read(index))


def _resized_bytes(facts: ImageFacts, size: int) -> int:
    short, long = sorted((facts.width, facts.height))
    return 3 * size * round(size * long / max(1, short))


class Remembered:
    """Photographs that are read once and kept in memory, resized.

    Args:
        source: The photographs.
        workers: Number of processes that read them.
        quiet: Show no progress.
    """

    def __init__(self, source: OwnPhotographs, workers: int, *, quiet: bool = False) -> None:
        self.classes, self.labels, self.size = source.classes, source.labels, source.size
        self.fingerprint, self.source = source.fingerprint, source
        self.kept: list[Any] = []  # pixels, or why an image cannot be read
        numbers = torch.arange(len(source)).split(CHUNK)
        with Progress(len(source), unit="images", quiet=quiet) as progress:
            for images in load_in_order(partial(_read_all, source), numbers, workers if len(numbers) > 4 else 0):
                self.kept += images
                progress.update(f"reading image {len(self.kept):,} of {len(source):,}", len(self.kept))

    def __len__(self) -> int:
        return len(self.kept)

    def name(self, index: int) -> str:
        """Returns the path of an image."""
        return self.source.name(index)

    def read(self, index: int) -> Image:
        """Returns an image, or raises `BadImageError`."""
        from PIL import Image as Pillow

        return Pillow.fromarray(self.pixels(index))

    def pixels(self, index: int) -> Any:
        """Returns an image as an array, (H, W, 3) uint8, or raises `BadImageError`."""
        image = self.kept[index]
        if isinstance(image, str):
            raise BadImageError(image)
        return image


def _read_all(source: OwnPhotographs, indices: Tensor) -> list[Any]:
    """Returns each image as an array, (H, W, 3) uint8, or why it cannot be read."""
    found: list[Any] = []
    for index in indices.tolist():
        try:
            found.append(source.pixels(index).copy())
        except BadImageError as error:
            found.append(str(error))
    return found


def remembered(source: OwnPhotographs, workers: int, *, quiet: bool = False) -> OwnPhotographs | Remembered:
    """Keeps photographs in memory if they fit into a part of it."""
    return Remembered(source, workers, quiet=quiet) if source.bytes <= MEMORY else source
