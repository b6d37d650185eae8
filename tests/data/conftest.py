"""Small image sets in the official layouts, with checksums of their own."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from epitomic.data.small.cifar import CifarSource
from epitomic.data.small.idx import IdxSource
from epitomic.data.small.splits import Split
from epitomic.support.rng import generator

COUNTS = {"train": 12, "t10k": 6}


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">{1 + values.ndim}I", 8 << 8 | values.ndim, *values.shape) + values.astype(np.uint8).tobytes()


@pytest.fixture
def idx_source(tmp_path: Path) -> IdxSource:
    rng, sums = np.random.default_rng(0), []
    folder = tmp_path / "MNIST/raw"
    folder.mkdir(parents=True)
    for prefix, count in COUNTS.items():
        arrays = {"images-idx3": rng.integers(0, 256, (count, 28, 28)), "labels-idx1": np.arange(count) % 10}
        for name, values in arrays.items():
            raw = gzip.compress(idx(values), mtime=0)
            (folder / f"{prefix}-{name}-ubyte.gz").write_bytes(raw)
            sums.append(hashlib.sha256(raw).hexdigest())
    return IdxSource("MNIST/raw", ("http://127.0.0.1:9/",), tuple("0123456789"), tuple(sums))


@pytest.fixture
def cifar_source(tmp_path: Path) -> CifarSource:
    rng, sums = np.random.default_rng(0), {}
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        records = rng.integers(0, 256, (4, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(4)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
        sums[name] = hashlib.sha256(records.tobytes()).hexdigest()
    return CifarSource(
        folder="cifar-10-batches-bin",
        pickled_folder="cifar-10-batches-py",
        archive="cifar.tar.gz",
        archive_sha256="0" * 64,
        urls=("http://127.0.0.1:9/",),
        classes=tuple("abcdefghij"),
        sha256=tuple(sums.values()),
    )


def random_split(count: int = 70, channels: int = 2, size: int = 10) -> Split:
    images = torch.randint(0, 256, (count, channels, size, size), generator=generator("test"), dtype=torch.uint8)
    return Split(images, torch.arange(count) % 10)
