"""A prepared set of photographs: Arrow shards with random access, read through Hugging Face ``datasets``.

Why this library: every image has a number, and reading needs nothing but that number. So a run can
resume in the middle of an epoch with only the seed: there is no reader state to save.
Shards are memory-mapped, so worker processes share them without loading them, and anyone can open them with
``datasets.Dataset.from_file``. We rejected two alternatives: ``wids`` (tar files with an index) may unpickle a
member because of its file name, and ArrayRecord needs a second library to decode its records.

    STORE/index.json                contents; written last, so a store with an index is complete
    STORE/statistics.json           mean and covariance of the training set's colours (`color`)
    STORE/bad_images.csv            images that could not be read, with the reason
    STORE/train/shard-00000.arrow   columns image, label, name, crc
    STORE/val/...
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from epitomic.support.errors import UserError
from epitomic.support.files import read_json
from epitomic.support.images import BadImageError, decode, resize_short

if TYPE_CHECKING:
    from PIL.Image import Image

INDEX, PLAN, STATISTICS, BAD = "index.json", "plan.json", "statistics.json", "bad_images.csv"
FORMAT = 1  # version of the index; other versions are refused
REMAKE = "make the store again with `epitomic prepare`"


@dataclass(frozen=True)
class Shard:
    """One shard file."""

    file: str  # path in the store
    images: int  # number of images
    bytes: int  # size of the file


@dataclass(frozen=True)
class Index:
    """The contents of a store."""

    classes: tuple[str, ...]  # in the order of the labels
    size: int  # short side of the images in pixels
    splits: dict[str, tuple[Shard, ...]]

    def fingerprint(self, split: str) -> str:
        """Returns a text that changes with the images of a split."""
        shards = [(s.file, s.images, s.bytes) for s in self.splits[split]]
        return hashlib.sha256(json.dumps([self.classes, self.size, shards]).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Returns what `read_index` reads."""
        splits = {name: [vars(shard) for shard in shards] for name, shards in self.splits.items()}
        return {"format": FORMAT, "size": self.size, "classes": list(self.classes), "splits": splits}


def is_store(folder: Path) -> bool:
    """Whether a folder holds a store, complete or not."""
    return (folder / INDEX).is_file() or (folder / PLAN).is_file()


def read_index(folder: Path) -> Index:
    """Reads the contents of a store.

    Raises:
        UserError: If the store is incomplete, damaged or of another version.
    """
    path = folder / INDEX
    if not path.is_file():
        raise UserError(f"{folder} is not complete: run the same `epitomic prepare` again to finish it")
    values = read_json(path)
    if values.get("format") != FORMAT:
        raise UserError(f"{path} has format {values.get('format')}, but this version reads format {FORMAT}")
    try:
        splits = {
            str(name): tuple(Shard(str(s["file"]), int(s["images"]), int(s["bytes"])) for s in shards)
            for name, shards in values["splits"].items()
        }
        return Index(tuple(map(str, values["classes"])), int(values["size"]), splits)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}): {REMAKE}") from None


class StoreImages:
    """One split of a store, such as ``"train"``."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder = folder
        index = read_index(folder)
        if not index.splits.get(split):
            raise UserError(f"{folder} has no images of {split!r}: it has {', '.join(index.splits)}")
        self.classes, self.size = index.classes, index.size
        self.fingerprint = index.fingerprint(split)
        self.table = _open(folder, index.splits[split])
        self.labels = torch.from_numpy(self.table.data.column("label").to_numpy().astype("int64"))
        wrong = ((self.labels < 0) | (self.labels >= len(self.classes))).nonzero()
        if len(wrong):
            raise UserError(
                f"{folder}: label {int(self.labels[wrong[0]])} of image {int(wrong[0])} is not a class: {REMAKE}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        """Returns the store and the name of an image."""
        return f"{self.folder}: {self.table[index]['name'][0].as_py()}"

    def read(self, index: int) -> Image:
        """Reads an image, or raises `BadImageError`."""
        try:
            row = self.table[index]
            contents, crc = row["image"][0].as_py()["bytes"], row["crc"][0].as_py()
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:  # pyarrow's errors derive from these
            raise BadImageError(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from None
        if not contents or zlib.crc32(contents) != crc:
            raise BadImageError("its bytes in the store do not match their checksum")
        return resize_short(decode(contents, upright=False), self.size)  # `prepare` followed orientation tags


def _open(folder: Path, shards: tuple[Shard, ...]) -> Any:
    """Opens the shards as one memory-mapped table; an error names the shard that is missing or damaged."""
    from datasets import Dataset, concatenate_datasets

    parts = []
    for shard in shards:
        path = folder / shard.file
        if not path.is_file():
            raise UserError(f"{path} is missing: {REMAKE}")
        if path.stat().st_size != shard.bytes:
            raise UserError(f"{path} is truncated or altered: {path.stat().st_size} bytes, not {shard.bytes}: {REMAKE}")
        try:
            part = Dataset.from_file(str(path))
        except Exception as error:  # several libraries raise errors of their own
            raise UserError(f"{path} is damaged ({str(error).splitlines()[0][:200]}): {REMAKE}") from None
        columns = {"image", "label", "name", "crc"}
        if len(part) != shard.images or not columns <= set(part.column_names):
            raise UserError(f"{path} is damaged: {len(part)} images, not {shard.images}: {REMAKE}")
        parts.append(part)
    return concatenate_datasets(parts).with_format("arrow")
