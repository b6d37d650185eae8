"""The table of a split: where each image is, its label, its name and its checksum.

A table is a safetensors file of a few columns, about 60 bytes an image. It is small enough to read as a whole, so
opening a store of 50 GB reads some 75 MB. Its own SHA-256 is in the index and is checked before the table is parsed.

    label     int32    class number
    shard     int32    number of the shard in the index
    offset    int64    first byte of the image in the shard
    length    int64    number of bytes
    crc       int64    CRC-32 of these bytes
    name      uint8    UTF-8 of all names, one after another
    name_end  int64    where each name ends in `name`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from epitomic.support.errors import UserError

if TYPE_CHECKING:
    from typing import Self  # Python 3.11

TYPES = {
    **{"label": torch.int32, "shard": torch.int32, "offset": torch.int64, "length": torch.int64},
    **{"crc": torch.int64, "name": torch.uint8, "name_end": torch.int64},
}


@dataclass(frozen=True)
class Table:
    """The columns of a split, each (N,) except ``name``."""

    label: Tensor
    shard: Tensor
    offset: Tensor
    length: Tensor
    crc: Tensor
    name: Tensor
    name_end: Tensor

    @classmethod
    def of(cls, columns: dict[str, list[int]], names: Sequence[str]) -> Self:
        """Returns the table of one shard from the columns label, offset, length and crc, and the names."""
        import numpy as np

        encoded = [name.encode(errors="replace") for name in names]
        columns = {**columns, "shard": [0] * len(names), "name_end": list(accumulate(map(len, encoded)))}
        tensors = {key: torch.tensor(values, dtype=TYPES[key]) for key, values in columns.items()}
        return cls(**tensors, name=torch.from_numpy(np.frombuffer(b"".join(encoded), np.uint8).copy()))

    @classmethod
    def join(cls, parts: Sequence[Table]) -> Self:
        """Returns the table of several shards, numbered in order."""
        numbered, ends = [], 0
        for number, part in enumerate(parts):
            numbered.append(replace(part, shard=torch.full_like(part.shard, number), name_end=part.name_end + ends))
            ends += len(part.name)
        return cls(**{key: torch.cat([getattr(part, key) for part in numbered]) for key in TYPES})

    def __len__(self) -> int:
        return len(self.label)

    def to_bytes(self) -> bytes:
        """Returns the contents of the table's file; the same table gives the same bytes."""
        from safetensors.torch import save

        return save({key: getattr(self, key).contiguous() for key in TYPES})

    @classmethod
    def from_bytes(cls, contents: bytes, where: str) -> Self:
        """Reads what `to_bytes` wrote; ``where`` names the file.

        Raises:
            UserError: If a column is missing, or of another type or length.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            tensors = load(contents)
        except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, OverflowError) as error:
            raise UserError(f"{where} is not a safetensors file: {str(error)[:200]}") from None
        found = {key: tensor.dtype for key, tensor in tensors.items()}
        shapes = {tuple(tensor.shape) for key, tensor in tensors.items() if key != "name"}
        if found != TYPES or len(shapes) != 1 or any(tensor.dim() != 1 for tensor in tensors.values()):
            raise UserError(f"{where} does not have the columns of a table: {', '.join(TYPES)}")
        return cls(**tensors)

    def problem(self, classes: int, sizes: Sequence[int]) -> str | None:
        """Returns what is wrong with the first row that does not fit, or None.

        Args:
            classes: Number of classes.
            sizes: Size of each shard in bytes.
        """
        start = torch.cat((self.name_end.new_zeros(1), self.name_end))[:-1]
        size = torch.tensor([*sizes, 0])[self.shard.clamp(0, len(sizes)).long()]
        checks = {
            "label": (self.label < 0) | (self.label >= classes),
            "shard": (self.shard < 0) | (self.shard >= len(sizes)),
            "offset": (self.offset < 0) | (self.offset > size),
            "length": (self.length <= 0) | (self.length > size - self.offset),
            "crc": (self.crc < 0) | (self.crc >= 1 << 32),
            "name_end": (self.name_end < start) | (self.name_end > len(self.name)),
        }
        for key, wrong in checks.items():
            if wrong.any():
                row = int(wrong.nonzero()[0])
                return f"{key} {int(getattr(self, key)[row])} of image {row} is out of range"
        return None

    def place(self, index: int) -> tuple[int, int, int, int]:
        """Returns shard, offset, length and CRC-32 of an image."""
        shard, offset, length, crc = self._places
        return shard.item(index), offset.item(index), length.item(index), crc.item(index)

    @cached_property
    def _places(self) -> tuple[Any, Any, Any, Any]:
        """The columns of `place` as NumPy arrays, whose items take a fiftieth of the time of a tensor's."""
        return self.shard.numpy(), self.offset.numpy(), self.length.numpy(), self.crc.numpy()

    def __getstate__(self) -> dict[str, Tensor]:
        return {key: getattr(self, key) for key in TYPES}  # the arrays share the memory of the tensors

    def name_of(self, index: int) -> str:
        """Returns the name of an image, such as ``"n01440764/n01440764_10026.JPEG"``."""
        start = int(self.name_end[index - 1]) if index else 0
        return bytes(self.name[start : int(self.name_end[index])].numpy()).decode(errors="replace")
