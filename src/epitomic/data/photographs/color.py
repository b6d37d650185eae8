"""The colours of a training set: mean and covariance of its RGB pixels, and the colour noise made from them.

Krizhevsky et al. (2012), Section 4.1, add to every pixel of an image

    [p1, p2, p3] [a1 l1, a2 l2, a3 l3]^T

where p and l are the eigenvectors and eigenvalues of the 3 x 3 covariance of the RGB pixel values over the training
set. Each a is drawn once per image from a normal distribution with standard deviation 0.1. The eigenvalues depend on
the scale of the pixels; here pixels are from 0 to 1.
"""

from __future__ import annotations

import json
import math
import threading
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

from epitomic.data.photographs.loading import ImageSource, load_in_order
from epitomic.data.standardisation import Standardize
from epitomic.support.errors import UserError
from epitomic.support.files import parse_json, write_text
from epitomic.support.images import BadImageError
from epitomic.support.schema import is_count, is_number

if TYPE_CHECKING:
    from PIL.Image import Image

TERMS = 1024  # a sum of this many products of -128 to 127 is at most 2**24, exact in float32
GROUP = 4  # pixels side by side in one matrix product; one pixel's three columns would be too few to be fast
BLOCKS = 8  # blocks of TERMS * GROUP pixels at a time; they fit into the cache
CHUNK = 64  # images that a worker measures at a time
PAIRS = [(i, j) for i in range(3) for j in range(i, 3)]


@dataclass(frozen=True)
class ColorStatistics:
    """Mean and covariance of all pixels of a training set, for pixels from 0 to 1.

    Attributes:
        mean: Mean of red, green and blue.
        covariance: Covariance of red, green and blue, 3 x 3.
        images: Number of images measured.
        of: Fingerprint of the training set.
    """

    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    images: int
    of: str

    def standardize(self) -> Standardize:
        """Returns the global mean, and one scale for all channels, which suits the networks' initial weights."""
        deviation = math.sqrt(max(sum(self.covariance[i][i] for i in range(3)) / 3, 1e-12))
        return Standardize(self.mean, (deviation,) * 3)

    def noise(self) -> Tensor:
        """Returns the matrix with columns p l, (3, 3), that turns three normal numbers into colour noise."""
        values, vectors = torch.linalg.eigh(torch.tensor(self.covariance, dtype=torch.float64))
        signs = torch.where(vectors.sum(0) < 0, -1.0, 1.0)  # eigh leaves the signs open: fix them
        return (vectors * signs * values).float()

    def to_text(self) -> str:
        """Returns the statistics as JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def save(self, path: Path) -> None:
        """Writes the statistics as JSON."""
        write_text(path, self.to_text())

    @classmethod
    def load(cls, path: Path, of: str) -> ColorStatistics:
        """Reads a file that `save` wrote; see `parse`."""
        try:
            return cls.parse(path.read_bytes(), path, of)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from None

    @classmethod
    def parse(cls, contents: bytes, path: Path, of: str) -> ColorStatistics:
        """Reads the contents of a file that `save` wrote.

        Raises:
            UserError: If the file is damaged, or of other images than those with the fingerprint ``of``.
        """
        values = parse_json(contents, path)
        mean, rows = values.get("mean"), values.get("covariance")
        if not (_are_numbers(mean) and isinstance(rows, list) and len(rows) == 3 and all(map(_are_numbers, rows))):
            raise UserError(f"{path} does not hold a mean of 3 numbers and a covariance of 3 x 3")
        if not _is_covariance(rows) or not all(0 <= value <= 1 for value in mean):
            raise UserError(f"{path} does not hold the mean and the covariance of colours from 0 to 1")
        if values.get("of") != of:
            raise UserError(f"{path} was computed for other images than these: remove it and prepare them again")
        images: Any = values.get("images")
        return cls(tuple(mean), tuple(map(tuple, rows)), images if is_count(images) else 0, of)


def _is_covariance(rows: list[list[float]]) -> bool:
    """Whether 3 x 3 numbers are symmetric and have no negative eigenvalue, but for rounding."""
    matrix = torch.tensor(rows, dtype=torch.float64)
    if not torch.equal(matrix, matrix.T) or bool((matrix.abs() > 1).any()):
        return False
    return bool(torch.linalg.eigvalsh(matrix).min() >= -1e-9)


def _are_numbers(values: Any) -> TypeGuard[list[float]]:
    """Whether ``values`` is a list of three finite numbers."""
    return isinstance(values, list) and len(values) == 3 and all(map(is_number, values))


@dataclass
class ColorSums:
    """Exact sums over pixels minus 128, as integers: the same in any order and on any number of processes."""

    images: int = 0
    pixels: int = 0
    first: list[int] = field(default_factory=lambda: [0] * 3)  # sum of each channel
    second: list[int] = field(default_factory=lambda: [0] * 6)  # sum of each product of two channels, as in `PAIRS`

    def add(self, image: Image) -> None:
        """Adds the pixels of an RGB image."""
        import numpy as np

        values = _scratch()  # (BLOCKS, TERMS * GROUP * 3)
        flat, rows = values.reshape(-1), values.reshape(BLOCKS, TERMS, GROUP * 3)
        first = np.zeros(values.shape[1], np.float32)
        second = np.zeros((GROUP * 3, GROUP * 3))  # includes products with neighbouring pixels, not used
        contents = np.frombuffer(image.tobytes(), np.uint8)
        for start in range(0, len(contents), flat.size):
            piece = contents[start : start + flat.size]
            np.subtract(piece, np.float32(128), out=flat[: len(piece)])
            flat[len(piece) :] = 0
            first += values.sum(0)
            second += np.matmul(rows.transpose(0, 2, 1), rows).sum(0, dtype=np.float64)
        totals = first.reshape(64, -1).sum(0, dtype=np.float64).reshape(-1, 3).sum(0)  # long rows are fast
        own = second.reshape(GROUP, 3, GROUP, 3).trace(0, 0, 2)  # (3, 3)
        count = image.width * image.height
        self.merge(ColorSums(1, count, [int(v) for v in totals], [int(own[pair]) for pair in PAIRS]))

    def merge(self, other: ColorSums) -> None:
        """Adds the sums over other images."""
        self.images += other.images
        self.pixels += other.pixels
        self.first = [a + b for a, b in zip(self.first, other.first, strict=True)]
        self.second = [a + b for a, b in zip(self.second, other.second, strict=True)]

    def statistics(self, of: str) -> ColorStatistics:
        """Returns mean and covariance; ``of`` is the fingerprint of the images."""
        count = self.pixels
        mean = tuple((total / count + 128) / 255 for total in self.first)
        matrix = [[0.0] * 3 for _ in range(3)]
        for (i, j), total in zip(PAIRS, self.second, strict=True):
            numerator = total * count - self.first[i] * self.first[j]  # exact
            matrix[i][j] = matrix[j][i] = numerator / (count * count) / 255**2
        return ColorStatistics(mean, tuple(map(tuple, matrix)), self.images, of)


_local = threading.local()


def _scratch() -> Any:
    """Returns the same array for every image of a thread: a new one each time would cost more than the sums."""
    import numpy as np

    if not hasattr(_local, "values"):
        _local.values = np.empty((BLOCKS, TERMS * GROUP * 3), np.float32)
    return _local.values


def measure_colors(source: ImageSource, workers: int) -> ColorStatistics:
    """Measures every pixel of every image that can be read."""
    sums = ColorSums()
    for part in load_in_order(partial(_sum_colors, source), torch.arange(len(source)).split(CHUNK), workers):
        sums.merge(part)
    if not sums.pixels:
        raise UserError(f"no image can be read, such as {source.name(0)}")
    return sums.statistics(source.fingerprint)


def _sum_colors(source: ImageSource, samples: Tensor) -> ColorSums:
    sums = ColorSums()
    for sample in samples.tolist():
        try:
            sums.add(source.read(sample))
        except BadImageError:
            continue  # the training meets it again and reports it
    return sums
