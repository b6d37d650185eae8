"""Reads image sets in MNIST's layout: gzipped IDX files of a magic number, the dimensions, then bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from epitomic.data.small.official import check_labels, check_sha256, fetch
from epitomic.data.small.splits import Split
from epitomic.support.errors import UserError

UNSIGNED_BYTE = 8  # element type in the magic number; these sets have no other
CHUNK = 1 << 20  # bytes that are unpacked at a time
LIMIT = 1 << 26  # bytes, of a file and of what it unpacks to; the largest official one has 47,040,016

FILES = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]


@dataclass(frozen=True)
class IdxSource:
    """A set of four IDX files, laid out as torchvision does; ``sha256`` has the checksums of `FILES`."""

    folder: str
    urls: tuple[str, ...]
    classes: tuple[str, ...]
    sha256: tuple[str, ...]

    def load(self, root: Path) -> tuple[Split, Split]:
        """Reads the training and the test set; downloads missing files.

        Raises:
            UserError: If files are damaged or cannot be downloaded.
        """
        folder = root / self.folder
        files = dict(zip(FILES, self.sha256, strict=True))
        fetch(folder, files, self.urls)
        train, test = (self._split(folder / FILES[i], folder / FILES[i + 1]) for i in (0, 2))
        for name, sha256 in files.items():
            check_sha256(folder / name, (folder / name).read_bytes(), sha256)
        return train, test

    def _split(self, images_path: Path, labels_path: Path) -> Split:
        images, labels = read_idx(images_path, dims=3), read_idx(labels_path, dims=1)
        if len(images) != len(labels):
            raise UserError(f"{labels_path} has {len(labels)} labels for the {len(images)} images of {images_path}")
        check_labels(labels_path, labels, len(self.classes))
        return Split(images.unsqueeze(1), labels.long())


def read_idx(path: Path, dims: int) -> Tensor:
    """Reads a gzipped IDX file of unsigned bytes with ``dims`` dimensions as a uint8 tensor.

    Raises:
        UserError: If the file is missing, truncated, too long or of another kind, or if its CRC does not match.
    """
    try:
        if path.stat().st_size > LIMIT:
            raise UserError(f"{path} is not such an IDX file: it is larger than {LIMIT} bytes")
        with gzip.open(path) as file:
            shape = _shape(path, file.read(4 + 4 * dims), dims)
            size = math.prod(shape)
            if size > LIMIT:
                raise UserError(f"{path}: its header says {size} bytes of data, but at most {LIMIT} are read")
            body = bytearray(size + 1)  # one byte too many: this reads to the end, where gzip checks the CRC
            count = _read_into(file, body)
    except (EOFError, zlib.error, OSError) as error:
        raise UserError(f"{path} is damaged or not a gzip file: {error}") from None
    if count < size:
        raise UserError(f"{path} is truncated: its header says {size} bytes of data, but there are {count}")
    if count > size:
        raise UserError(f"{path} is too long: it holds more than the {size} bytes of data that its header says")
    return torch.frombuffer(body, dtype=torch.uint8)[:size].reshape(shape)


def _read_into(file: gzip.GzipFile, body: bytearray) -> int:
    """Fills ``body`` from the file as far as possible, and returns the number of bytes."""
    done, view = 0, memoryview(body)
    while done < len(body):
        count = file.readinto(view[done : done + CHUNK])
        if not count:
            break
        done += count
    return done


def _shape(path: Path, head: bytes, dims: int) -> tuple[int, ...]:
    if len(head) < 4 + 4 * dims:
        raise UserError(f"{path} is truncated: it ends within the header")
    magic, *shape = struct.unpack(f">{1 + dims}I", head)
    expected = UNSIGNED_BYTE << 8 | dims
    if magic != expected:
        raise UserError(
            f"{path} is not an IDX file of bytes in {dims} dimensions: its magic number is {magic:#010x}, not "
            f"{expected:#010x}"
        )
    if 0 in shape:
        raise UserError(f"{path} is empty: its header has the dimensions {tuple(shape)}")
    return tuple(shape)
