"""MNIST's layout, and damaged files of it: one clear line that names the file."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from epitomic.data.small.idx import LIMIT, IdxSource, read_idx
from epitomic.support.errors import UserError
from tests.data.conftest import idx


def test_idx(idx_source: IdxSource, tmp_path: Path) -> None:
    train, test = idx_source.load(tmp_path)
    assert train.images.shape == (12, 1, 28, 28)
    assert test.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert train.images.dtype == torch.uint8
    assert train.labels.dtype == torch.int64


def bad_crc(raw: bytes) -> bytes:
    return raw[:-8] + bytes(b ^ 255 for b in raw[-8:-4]) + raw[-4:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[: len(raw) // 2], "damaged|truncated"),
        (lambda raw: b"", "truncated"),
        (lambda raw: b"not gzip", "not a gzip file"),
        (bad_crc, "damaged"),
        (lambda raw: gzip.compress(b"\0\0\x08\x04" + gzip.decompress(raw)[4:]), "magic number"),
        (lambda raw: gzip.compress(gzip.decompress(raw)[:-1]), "truncated"),
        (lambda raw: gzip.compress(gzip.decompress(raw) + b"x"), "too long"),
        (lambda raw: gzip.compress(idx(np.arange(5))), "5 labels for the 12 images"),
        (lambda raw: gzip.compress(idx(np.full(12, 10))), "label 10 of image 0"),
        (lambda raw: gzip.compress(b"\0\0\x08\x01" + b"\xff" * 4), "its header says 4294967295 bytes"),
        (lambda raw: gzip.compress(b"\0\0\x08\x01" + struct.pack(">I", 1 << 30)), "its header says 1073741824 bytes"),
        (lambda raw: bytes(LIMIT + 1), "larger than"),
        (lambda raw: gzip.compress(idx(np.full(12, 3))), "SHA-256"),
    ],
)
def test_damaged_files_are_named(
    damage: Callable[[bytes], bytes], message: str, idx_source: IdxSource, tmp_path: Path
) -> None:
    path = tmp_path / "MNIST/raw/train-labels-idx1-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=message) as caught:
        idx_source.load(tmp_path)
    assert str(path) in str(caught.value)


def test_a_gzip_bomb_takes_little_memory(tmp_path: Path) -> None:
    """Before, a file of 2 MB that unpacks to 2 GB took 4 GB."""
    path, size = tmp_path / "bomb.gz", LIMIT - 16
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"\0\0\x08\x01" + struct.pack(">I", size) + bytes(2 * LIMIT))
    assert path.stat().st_size < 2 << 20
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match="too long"):
            read_idx(path, dims=1)
        assert tracemalloc.get_traced_memory()[1] < 1.1 * LIMIT
    finally:
        tracemalloc.stop()
