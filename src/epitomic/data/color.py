"""The colours of a training set: mean and covariance of its RGB pixels, and the noise made of them.

Krizhevsky et al. (2012), Section 4.1, add to every pixel of an image

    [p1, p2, p3] [a1 l1, a2 l2, a3 l3]^T

where p and l are the eigenvectors and eigenvalues of the 3 x 3 covariance of the RGB pixel values over the training
set, and each a is drawn once for an image, normal with standard deviation 0.1. An eigenvalue is a square, so the scale
of the pixels matters: here it is that of 0 to 1.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from epitomic.data.batches import Standardize
from epitomic.errors import UserError
from epitomic.files import read_json, write_json

if TYPE_CHECKING:
    from PIL.Image import Image

TERMS = 1024  # the sum of so many products of -128 to 127 is at most 2**24, exact in float32
GROUP = 4  # pixels that one product of matrices takes side by side: three columns would be too few for speed
BLOCKS = 8  # of TERMS * GROUP pixels, at a time: they stay in the cache
PAIRS = [(i, j) for i in range(3) for j in range(i, 3)]


@dataclass
class ColorSums:
    """Exact sums over pixels less 128, in whole numbers: the same in any order and on any number of processes."""

    images: int = 0
    pixels: int = 0
    first: list[int] = field(default_factory=lambda: [0] * 3)  # of each channel
    second: list[int] = field(default_factory=lambda: [0] * 6)  # of the products of `PAIRS`

    def add(self, image: Image) -> None:
        """The pixels of one RGB image."""
        import numpy as np

        values = _scratch()  # (BLOCKS, numbers of a block)
        flat, rows = values.reshape(-1), values.reshape(BLOCKS, TERMS, GROUP * 3)
        first = np.zeros(values.shape[1], np.float32)
        second = np.zeros((GROUP * 3, GROUP * 3))  # channels of a pixel with its own, and with its neighbours'
        contents = np.frombuffer(image.tobytes(), np.uint8)
        for start in range(0, len(contents), flat.size):
            piece = contents[start : start + flat.size]
            np.subtract(piece, np.float32(128), out=flat[: len(piece)])
            flat[len(piece) :] = 0
            first += values.sum(0)
            second += np.matmul(rows.transpose(0, 2, 1), rows).sum(0, dtype=np.float64)
        totals = first.reshape(64, -1).sum(0, dtype=np.float64).reshape(-1, 3).sum(0)  # long rows are fast
        own = second.reshape(GROUP, 3, GROUP, 3).trace(0, 0, 2)
        count = image.width * image.height
        self.merge(ColorSums(1, count, [int(v) for v in totals], [int(own[pair]) for pair in PAIRS]))

    def merge(self, other: ColorSums) -> None:
        """Adds the sums of other images."""
        self.images += other.images
        self.pixels += other.pixels
        self.first = [a + b for a, b in zip(self.first, other.first, strict=True)]
        self.second = [a + b for a, b in zip(self.second, other.second, strict=True)]

    def statistics(self, of: str) -> ColorStatistics:
        """Mean and covariance; ``of`` is the fingerprint of the images."""
        count = self.pixels
        mean = tuple((total / count + 128) / 255 for total in self.first)
        matrix = [[0.0] * 3 for _ in range(3)]
        for (i, j), total in zip(PAIRS, self.second, strict=True):
            numerator = total * count - self.first[i] * self.first[j]  # exact
            matrix[i][j] = matrix[j][i] = numerator / (count * count) / 255**2
        return ColorStatistics(mean, tuple(map(tuple, matrix)), self.images, of)


_local = threading.local()


def _scratch() -> Any:
    """The same array for every image: a new one of this size each time costs more than the sums."""
    import numpy as np

    if not hasattr(_local, "values"):
        _local.values = np.empty((BLOCKS, TERMS * GROUP * 3), np.float32)
    return _local.values


@dataclass(frozen=True)
class ColorStatistics:
    """Of all pixels of a training set, on the scale of 0 to 1.

    Attributes:
        mean: Of red, green and blue.
        covariance: 3 x 3.
        images: How many.
        of: Fingerprint of the training set.
    """

    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    images: int
    of: str

    def standardize(self) -> Standardize:
        """The global mean subtracted, and one scale for all channels, which suits the networks' initial weights."""
        deviation = math.sqrt(max(sum(self.covariance[i][i] for i in range(3)) / 3, 1e-12))
        return Standardize(self.mean, (deviation,) * 3)

    def noise(self) -> Tensor:
        """(3, 3): times three standard normal numbers, a colour noise of standard deviation 1. Columns are p l."""
        values, vectors = torch.linalg.eigh(torch.tensor(self.covariance, dtype=torch.float64))
        signs = torch.where(vectors.sum(0) < 0, -1.0, 1.0)  # an eigenvector's sign is anyone's choice: fix it
        return (vectors * signs * values).float()

    def save(self, path: Path) -> None:
        """Writes them as JSON."""
        rows = [list(row) for row in self.covariance]
        write_json(path, {"mean": list(self.mean), "covariance": rows, "images": self.images, "of": self.of})

    @classmethod
    def load(cls, path: Path, of: str) -> ColorStatistics:
        """What `save` wrote.

        Raises:
            UserError: If it is damaged, or was computed for other images than those with fingerprint ``of``.
        """
        values = read_json(path)
        mean: Any = values.get("mean")
        rows = values.get("covariance")
        if not (_numbers(mean) and isinstance(rows, list) and len(rows) == 3 and all(map(_numbers, rows))):
            raise UserError(f"{path} does not hold a mean of 3 numbers and a covariance of 3 x 3")
        if values.get("of") != of:
            raise UserError(f"{path} was computed for other images than these: remove it and prepare them again")
        return cls(tuple(mean), tuple(map(tuple, rows)), int(values.get("images", 0)), of)


def _numbers(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) == 3
        and all(isinstance(v, int | float) and math.isfinite(v) for v in values)
    )
