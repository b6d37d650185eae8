"""A prepared set of photographs: Arrow shards with random access, read through Hugging Face ``datasets``.

Why this library of those there are: a sample has a number, and asking for a number is all there is to reading. A run
that goes on in the middle of an epoch needs the epoch's order of numbers, which is a function of the seed, and nothing
from the reader: no position, no buffer, no state of a shuffle. The shards are memory-mapped, so that worker processes
share them and none of them is read into memory, and anyone can open them with ``datasets.Dataset.from_file``. Tar files
with an index (``wids``) would do as well, but unpickle by file name what they hold; ArrayRecord needs another library
beside it for the records' contents.

    STORE/index.json                what is in it; written last, so that a store with an index is complete
    STORE/statistics.json           mean and covariance of the training set's colours (`data.color`)
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

from epitomic.data.pixels import BadImageError, decode, resize_short
from epitomic.errors import UserError
from epitomic.files import read_json

if TYPE_CHECKING:
    from PIL.Image import Image

INDEX, STATISTICS, BAD = "index.json", "statistics.json", "bad_images.csv"
FORMAT = 1  # of the index; a reader of another one refuses
REMAKE = "make the store again with `epitomic prepare`"


@dataclass(frozen=True)
class Shard:
    """One file.

    Attributes:
        file: Its path in the store.
        images: How many it holds.
        bytes: Its size.
    """

    file: str
    images: int
    bytes: int


@dataclass(frozen=True)
class Index:
    """What a store holds.

    Attributes:
        classes: Names, in the order of the labels.
        size: Short side of the images.
        splits: The shards of each split.
    """

    classes: tuple[str, ...]
    size: int
    splits: dict[str, tuple[Shard, ...]]

    def fingerprint(self, split: str) -> str:
        """Changes when the images of a split are others."""
        shards = [(s.file, s.images, s.bytes) for s in self.splits[split]]
        return hashlib.sha256(json.dumps([self.classes, self.size, shards]).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """For `read_index`."""
        splits = {name: [vars(shard) for shard in shards] for name, shards in self.splits.items()}
        return {"format": FORMAT, "size": self.size, "classes": list(self.classes), "splits": splits}


def is_store(folder: Path) -> bool:
    """Whether a folder holds a store, complete or not."""
    return (folder / INDEX).is_file() or (folder / "plan.json").is_file()


def read_index(folder: Path) -> Index:
    """What is in a store.

    Raises:
        UserError: If it is not complete, damaged or of another version.
    """
    path = folder / INDEX
    if not path.is_file():
        raise UserError(f"{folder} is not complete: run the same `epitomic prepare` again to finish it")
    values = read_json(path)
    if values.get("format") != FORMAT:
        raise UserError(f"{path} has format {values.get('format')}, and this version reads {FORMAT}")
    try:
        splits = {
            str(name): tuple(Shard(str(s["file"]), int(s["images"]), int(s["bytes"])) for s in shards)
            for name, shards in values["splits"].items()
        }
        return Index(tuple(map(str, values["classes"])), int(values["size"]), splits)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}): {REMAKE}") from None


class StoreImages:
    """One split of a store.

    Args:
        folder: The store.
        split: Which of its splits.
    """

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
                f"{folder}: label {int(self.labels[wrong[0]])} of image {int(wrong[0])} is no class: {REMAKE}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        """For the user, of one image."""
        return f"{self.folder}: {self.table[index]['name'][0].as_py()}"

    def read(self, index: int) -> Image:
        """One image; `BadImageError` if it cannot be."""
        try:
            row = self.table[index]
            contents, crc = row["image"][0].as_py()["bytes"], row["crc"][0].as_py()
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:  # pyarrow's errors are among these
            raise BadImageError(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from None
        if not contents or zlib.crc32(contents) != crc:
            raise BadImageError("its bytes in the store do not match their checksum")
        return resize_short(decode(contents), self.size)  # images that were of this size already are kept as they were


def _open(folder: Path, shards: tuple[Shard, ...]) -> Any:
    """The shards as one table, memory-mapped; an error that names the one that is not whole."""
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
        except Exception as error:  # of several libraries
            raise UserError(f"{path} is damaged ({str(error).splitlines()[0][:200]}): {REMAKE}") from None
        columns = {"image", "label", "name", "crc"}
        if len(part) != shard.images or not columns <= set(part.column_names):
            raise UserError(f"{path} is damaged: {len(part)} images, not {shard.images}: {REMAKE}")
        parts.append(part)
    return concatenate_datasets(parts).with_format("arrow")
