"""Reads CIFAR-10 in its binary layout: batch files of records, each a label and the pixels of one image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from epitomic.data.small.official import check_labels, check_sha256, fetch
from epitomic.data.small.splits import Split
from epitomic.support.errors import UserError

RECORD = 1 + 3 * 32 * 32  # bytes: a label, then the red, green and blue planes
LIMIT = 1 << 29  # bytes; an official batch has 30,730,000

FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")


@dataclass(frozen=True)
class CifarSource:
    """CIFAR-10's six batch files; ``sha256`` has the checksums of `FILES`.

    The pickled layout is never opened, because reading a pickle can run any program.
    """

    folder: str
    pickled_folder: str
    urls: tuple[str, ...]
    archive: str
    archive_sha256: str
    classes: tuple[str, ...]
    sha256: tuple[str, ...]

    def load(self, root: Path) -> tuple[Split, Split]:
        """Reads the training and the test set; downloads missing files.

        Raises:
            UserError: If files are damaged or cannot be downloaded, or if only the pickled layout is there.
        """
        folder, pickled = root / self.folder, root / self.pickled_folder
        if pickled.is_dir() and not all((folder / name).is_file() for name in FILES):
            raise UserError(
                f"{pickled} holds the pickled layout, but only the binary layout is read: download "
                f"{self.urls[0]}{self.archive} and unpack it in {root}, or remove {pickled} for an automatic download"
            )
        files = dict(zip(FILES, self.sha256, strict=True))
        fetch(folder, files, self.urls, archive=(self.archive, self.archive_sha256))
        *train, test = (self._batch(folder / name, sha256) for name, sha256 in files.items())
        return Split(torch.cat([b.images for b in train]), torch.cat([b.labels for b in train])), test

    def _batch(self, path: Path, sha256: str) -> Split:
        records = read_binary(path)  # (count, 1 + 3072)
        check_labels(path, records[:, 0], len(self.classes))
        check_sha256(path, records.numpy(), sha256)
        return Split(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long())


def read_binary(path: Path) -> Tensor:
    """Reads a batch file as (count, 3073) bytes, each row a label and its pixels.

    Raises:
        UserError: If the file is missing, empty or not a whole number of records.
    """
    try:
        if path.stat().st_size > LIMIT:
            raise UserError(f"{path} is not a CIFAR-10 batch: it is larger than {LIMIT} bytes")
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if not raw or len(raw) % RECORD:
        raise UserError(
            f"{path} is truncated or not a CIFAR-10 batch: {len(raw)} bytes are not whole records of {RECORD}"
        )
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, RECORD)
