"""CIFAR-10 batches: the binary layout, and the pickled Python layout."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from epitomic.data.unpickle import UnpickleError, unpickle
from epitomic.errors import UserError

PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS  # a label, then the red, green and blue planes
LIMIT = 1 << 29  # bytes; a batch has 30,730,000


def read_binary(path: Path) -> Tensor:
    """A batch of the binary layout, (count, 3073) bytes: label, then pixels.

    Raises:
        UserError: If the file is missing, empty or not a whole number of records.
    """
    raw = _read(path)
    if not raw or len(raw) % RECORD:
        raise UserError(f"{path} is truncated or no CIFAR-10 batch: {len(raw)} bytes are not whole records of {RECORD}")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, RECORD)


def read_pickled(path: Path) -> Tensor:
    """A batch of the Python layout, as `read_binary` gives it. The reader builds data and can run nothing.

    Raises:
        UserError: If the file is missing, damaged, holds anything but plain data, or is not a batch.
    """
    try:
        batch = unpickle(_read(path))
    except UnpickleError as error:
        raise UserError(f"{path} is no CIFAR-10 batch: {error}") from None
    if not isinstance(batch, dict):
        raise UserError(f"{path} is no CIFAR-10 batch: it holds {type(batch).__name__}, not a dictionary")
    entries = {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    data, labels = entries.get("data"), entries.get("labels")
    if not isinstance(data, Tensor) or data.dim() != 2 or data.shape[1] != PIXELS:
        raise UserError(f"{path} is no CIFAR-10 batch: its 'data' is not an array of rows of {PIXELS} bytes")
    if not isinstance(labels, list) or len(labels) != len(data):
        raise UserError(f"{path} is no CIFAR-10 batch: it needs one label for each of its {len(data)} images")
    if not all(isinstance(v, int) and 0 <= v <= 255 for v in labels):
        raise UserError(f"{path} has a label that is no number from 0 to 9")
    return torch.cat((torch.tensor(labels, dtype=torch.uint8)[:, None], data), 1)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > LIMIT:
            raise UserError(f"{path} is no CIFAR-10 batch: it is larger than any")
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"cannot read {path}: it is not there") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error}") from None
