"""A prepared set of photographs, format 2: images in shards, and one small table that says where each of them is.

    STORE/index.json                 contents, with a SHA-256 of itself; written last: a store that has it is complete
    STORE/statistics.json            mean and covariance of the training set's colours (`color`)
    STORE/bad_images.csv             images that could not be read, with the reason; nothing reads it
    STORE/train/table.safetensors    label, name, shard, offset, length and CRC-32 of each image (`table`)
    STORE/train/shard-00000.arrow    the images (`arrow`)
    STORE/val/...

Whatever is read is covered by a checksum, which is compared before anything is parsed: the index by its own, tables and
statistics by those in the index, each image by the one in the table. Opening reads the index and one table, no shard.
An image is one ``os.pread`` of its own bytes. There is no memory map: on a cold cache a map reads far around an image,
and a page that cannot be read would be a crash instead of an error. Every image has a number and reading needs only
that number, so a run resumes in the middle of an epoch with only the seed.
"""

from __future__ import annotations

import errno
import os
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from epitomic.data.photographs.color import ColorStatistics
from epitomic.data.photographs.table import Table
from epitomic.support.errors import UserError
from epitomic.support.files import check_seal, read_checked, read_json, sha256, write_atomically, write_sealed
from epitomic.support.images import LONGEST_SIDE, BadImageError, decode, decode_jpeg, resize_short, to_array
from epitomic.support.schema import is_count

if TYPE_CHECKING:
    from PIL.Image import Image

INDEX, PLAN, STATISTICS, BAD = "index.json", "plan.json", "statistics.json", "bad_images.csv"
TABLE = "table.safetensors"
FORMAT = 2  # version of the index; other versions are refused
REMAKE = "copy it again, or make the store again with `epitomic prepare`"


@dataclass(frozen=True)
class Checked:
    """A file that is read as a whole, with its size and SHA-256."""

    file: str  # path in the store
    size: int  # in bytes
    sha256: str

    @classmethod
    def write(cls, store: Path, file: str, contents: bytes) -> Checked:
        """Writes a file of a store."""
        write_atomically(store / file, lambda path: path.write_bytes(contents))
        return cls(file, len(contents), sha256(contents))

    def read(self, store: Path) -> bytes:
        """Reads the file and compares size and SHA-256."""
        try:
            return read_checked(store / self.file, self.size, self.sha256)
        except UserError as error:
            raise UserError(f"{error}: {REMAKE}") from None


@dataclass(frozen=True)
class Shard:
    """One shard file."""

    file: str  # path in the store
    images: int  # number of images
    bytes: int  # size of the file


@dataclass(frozen=True)
class Split:
    """The files of one split."""

    table: Checked
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class Index:
    """The contents of a store."""

    classes: tuple[str, ...]  # in the order of the labels
    size: int  # short side of the images in pixels
    splits: dict[str, Split]
    statistics: Checked | None = None  # None without a split "train"

    def write(self, store: Path) -> None:
        """Writes what `read_index` reads."""
        write_sealed(store / INDEX, {"format": FORMAT, **asdict(self)})


def fingerprint(classes: tuple[str, ...], size: int, table: Checked) -> str:
    """Returns a text that changes with the images of a split."""
    return sha256(repr((classes, size, table.sha256)).encode())


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
    if values.get("format") == 1:
        raise UserError(
            f"{folder} is a store of format 1: upgrade it with `epitomic prepare {folder} --upgrade`, which decodes no "
            "image and keeps the shards as they are"
        )
    if values.get("format") != FORMAT:
        raise UserError(f"{path} has format {values.get('format')}, but this version reads format {FORMAT}")
    values = check_seal(path, values)
    try:
        splits = {str(name): _split(split) for name, split in values["splits"].items()}
        statistics = values["statistics"] and _checked(values["statistics"])
        return Index(tuple(map(str, values["classes"])), whole(values["size"], LONGEST_SIDE), splits, statistics)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}): {REMAKE}") from None


def _split(values: Any) -> Split:
    shards = tuple(Shard(inside(s["file"]), whole(s["images"]), whole(s["bytes"])) for s in values["shards"])
    return Split(_checked(values["table"]), shards)


def _checked(values: Any) -> Checked:
    return Checked(inside(values["file"]), whole(values["size"]), str(values["sha256"]))


def whole(value: Any, most: int = 2**62) -> int:
    """Returns a number unchanged, or raises ValueError unless it is a whole number from 0 to ``most``."""
    if not is_count(value) or value > most:
        raise ValueError(f"{str(value)[:60]} is not a whole number up to {most}")
    return int(value)


def inside(file: Any) -> str:
    """Returns a path in the store unchanged, or raises ValueError if it would leave the store."""
    path = PurePosixPath(file)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\\" in file or ":" in file or "\0" in file:
        raise ValueError(f"{file!r} is not a path inside the store")
    return str(file)


def read_store_statistics(folder: Path, of: str) -> ColorStatistics:
    """Reads the colour statistics of a store, whose training set has the fingerprint ``of``."""
    statistics = read_index(folder).statistics
    if statistics is None:
        raise UserError(f"{folder} has no statistics, because it has no images of 'train'")
    return ColorStatistics.parse(statistics.read(folder), folder / statistics.file, of)


class StoreImages:
    """One split of a store, such as ``"train"``."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder = folder
        index = read_index(folder)
        if split not in index.splits or not index.splits[split].shards:
            raise UserError(f"{folder} has no images of {split!r}: it has {', '.join(index.splits)}")
        files = index.splits[split]
        self.classes, self.size, self.shards = index.classes, index.size, files.shards
        self.fingerprint = fingerprint(self.classes, self.size, files.table)
        self.table = Table.from_bytes(files.table.read(folder), str(folder / files.table.file))
        problem = self.table.problem(len(self.classes), [shard.bytes for shard in self.shards])
        if problem or len(self.table) != sum(shard.images for shard in self.shards):
            raise UserError(f"{folder / files.table.file} does not fit {folder / INDEX}: {problem or len(self.table)}")
        self.labels = self.table.label.long()
        for shard in self.shards:
            _check_size(folder / shard.file, shard.bytes)
        self._open: dict[int, int] = {}  # number of a shard -> its file descriptor

    def __len__(self) -> int:
        return len(self.labels)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": {}}  # another process opens files of its own

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Closes the shards; a later read opens them again."""
        files = vars(self).get("_open", {})
        while files:
            os.close(files.popitem()[1])

    def name(self, index: int) -> str:
        """Returns the store and the name of an image."""
        return f"{self.folder}: {self.table.name_of(index)}"

    def read(self, index: int) -> Image:
        """Reads an image, or raises `BadImageError`."""
        image = decode(self.contents(index), upright=False)  # `prepare` followed orientation tags
        return resize_short(image, self.size)

    def pixels(self, index: int) -> Any:
        """Reads an image as an array, (H, W, 3) uint8, or raises `BadImageError`."""
        contents = self.contents(index)
        pixels = decode_jpeg(contents)
        if pixels is not None and min(pixels.shape[:2]) == self.size:
            return pixels
        return to_array(resize_short(decode(contents, upright=False), self.size))

    def contents(self, index: int) -> bytes:
        """Reads the bytes of an image file, or raises `BadImageError` if they do not match their checksum."""
        shard, offset, length, crc = self.table.place(index)
        try:
            contents = os.pread(self._file(shard), length, offset)
            while 0 < len(contents) < length:  # network disks may give less than was asked for
                more = os.pread(self._file(shard), length - len(contents), offset + len(contents))
                contents = contents + more if more else b""
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise BadImageError(f"image {index}: cannot read {self.shards[shard].file}: {reason}") from None
        if zlib.crc32(contents) != crc or len(contents) != length:
            raise BadImageError(f"image {index}: its bytes in {self.shards[shard].file} do not match their checksum")
        return contents

    def _file(self, shard: int) -> int:
        """Returns the descriptor of a shard, and opens it if need be."""
        if shard not in self._open:
            path = self.folder / self.shards[shard].file
            try:
                self._open[shard] = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            except OSError as error:
                if error.errno != errno.EMFILE or not self._open:
                    raise
                self.close()  # too many files are open: begin again with this one
                self._open[shard] = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._open[shard], 0, 0, os.POSIX_FADV_RANDOM)  # read no more than is asked for
        return self._open[shard]


def _check_size(path: Path, size: int) -> None:
    """Raises an error unless a shard is there with its size; reads nothing of it."""
    try:
        found = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if found is None:
        raise UserError(f"{path} is missing: {REMAKE}")
    if found != size:
        raise UserError(f"{path} is truncated or altered: it has {found} bytes, not {size}: {REMAKE}")
