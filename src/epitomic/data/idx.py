"""The IDX format of MNIST: a magic number, the dimensions, then bytes; gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from epitomic.errors import UserError

UNSIGNED_BYTE = 8  # the element type in the magic number; the only one these sets have
LIMIT = 1 << 31  # more bytes than this no file of ours has


def read_idx(path: Path, dims: int) -> Tensor:
    """A gzipped IDX file of unsigned bytes with ``dims`` dimensions, as a uint8 tensor.

    Raises:
        UserError: If the file is missing, truncated, too long, of another kind, or fails its CRC.
    """
    try:
        with gzip.open(path) as file:
            head = file.read(4 + 4 * dims)
            shape = _shape(path, head, dims)
            size = math.prod(shape)
            if size > LIMIT:
                raise UserError(f"{path}: its header says {size} bytes of data, more than any set has")
            body = file.read(size + 1)  # one more than there should be: reads to the end, where the CRC is checked
    except FileNotFoundError:
        raise UserError(f"cannot read {path}: it is not there") from None
    except (EOFError, zlib.error, OSError) as error:
        raise UserError(f"{path} is damaged or is no gzip file: {error}") from None
    if len(body) < size:
        raise UserError(f"{path} is truncated: its header says {size} bytes of data, and there are {len(body)}")
    if len(body) > size:
        raise UserError(f"{path} is too long: there is more than the {size} bytes of data its header says")
    return torch.frombuffer(bytearray(body), dtype=torch.uint8).reshape(shape)


def _shape(path: Path, head: bytes, dims: int) -> tuple[int, ...]:
    if len(head) < 4 + 4 * dims:
        raise UserError(f"{path} is truncated: it ends within the header")
    magic, *shape = struct.unpack(f">{1 + dims}I", head)
    expected = UNSIGNED_BYTE << 8 | dims
    if magic != expected:
        raise UserError(f"{path} is no such IDX file: its magic number is {magic:#010x}, not {expected:#010x}")
    if 0 in shape:
        raise UserError(f"{path}: its header has an empty dimension, {tuple(shape)}")
    return tuple(shape)
