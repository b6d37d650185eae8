"""Near-copies: pairs of images from two splits that look the same, found by a difference hash of 64 bits.

An image is shrunk to 8 rows of 9 grey values. Each bit of its hash says whether a value is larger than its right
neighbour. Copies that were resized, compressed again or recoloured a little differ in few bits. Flat images have hashes
that say little, so a pair counts only if the 72 grey values are also correlated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.data.photographs.loading import ImageSource, default_workers, load_in_order
from epitomic.data.small.splits import Split
from epitomic.models.preprocessing import LUMA
from epitomic.support.images import BadImageError

ROWS, COLUMNS = 8, 9  # grey values of a shrunk image
BITS = ROWS * (COLUMNS - 1)
DISTANCE = 4  # bits of 64 in which the hashes of near-copies differ at most
CORRELATION = 0.985  # of the grey values of near-copies, at least
CHUNK = 64  # images that a worker shrinks in one go
ROW_BLOCK = 2000  # images that are compared with all others at once


@dataclass(frozen=True)
class Copy:
    """Two images that look the same.

    Attributes:
        first: Number of the image in the first split.
        second: Number of the image in the second split.
        distance: Number of bits in which their hashes differ.
    """

    first: int
    second: int
    distance: int


def shrink(images: Tensor) -> Tensor:
    """Shrinks images, (N, C, H, W) bytes, to grey values, (N, 8, 9)."""
    numbers = images.float()
    weights = numbers.new_tensor(LUMA) if images.shape[1] == 3 else numbers.new_full((images.shape[1],), 1.0)
    grey = (numbers * weights.reshape(1, -1, 1, 1)).sum(1, keepdim=True)
    return F.interpolate(grey, (ROWS, COLUMNS), mode="bilinear", antialias=True, align_corners=False)[:, 0]


def difference_hash(values: Tensor) -> Tensor:
    """Returns the 64 bits of each image's hash, (N, 64), from its grey values, (N, 8, 9)."""
    return (values[:, :, :-1] > values[:, :, 1:]).flatten(1)


def near_copies(first: Tensor, second: Tensor) -> list[Copy]:
    """Finds the pairs that look the same in two splits, the most alike first.

    Args:
        first: Grey values of one split's images, (N, 8, 9); NaN for an image that cannot be read.
        second: Grey values of the other's.
    """
    found: list[Copy] = []
    bits, plain = _signs(second), _centred(second)
    for start in range(0, len(first), ROW_BLOCK):
        block = first[start : start + ROW_BLOCK]
        agreement = _signs(block) @ bits.T  # bits that agree less bits that differ
        near = (agreement >= BITS - 2 * DISTANCE).nonzero()
        alike = (_centred(block[near[:, 0]]) * plain[near[:, 1]]).sum(1) >= CORRELATION  # never for NaN
        for i, j in near[alike].tolist():
            found.append(Copy(start + i, j, (BITS - int(agreement[i, j])) // 2))
    return sorted(found, key=lambda copy: copy.distance)


def _signs(values: Tensor) -> Tensor:
    """Hashes as numbers of 1 and -1, so that a product of two counts the bits that agree."""
    return difference_hash(values).float() * 2 - 1


def _centred(values: Tensor) -> Tensor:
    """Grey values without their mean and of length 1; all zero for an image of one colour."""
    flat = values.flatten(1) - values.flatten(1).mean(1, keepdim=True)
    return F.normalize(flat, dim=1, eps=1.0)


def shrink_all(images: Split | ImageSource, tell: Callable[[float], object] = lambda share: None) -> Tensor:
    """Returns the grey values of all images of a split, (N, 8, 9); NaN for an image that cannot be read.

    Args:
        images: The split.
        tell: Called with the share that is done.
    """
    done: list[Tensor] = []
    for values in _shrunk(images):
        done.append(values)
        tell(sum(map(len, done)) / len(images))
    return torch.cat(done) if done else torch.empty(0, ROWS, COLUMNS)


def _shrunk(images: Split | ImageSource) -> Iterator[Tensor]:
    if isinstance(images, Split):
        yield from map(shrink, images.images.split(ROW_BLOCK))
        return
    chunks = torch.arange(len(images)).split(CHUNK)
    workers = default_workers() if len(chunks) > 8 else 0  # starting processes takes longer than a few chunks
    yield from load_in_order(partial(_read_chunk, images), chunks, workers)


def _read_chunk(source: ImageSource, numbers: Tensor) -> Tensor:
    values = torch.full((len(numbers), ROWS, COLUMNS), torch.nan)
    for place, number in enumerate(numbers.tolist()):
        try:
            pixels = torch.from_numpy(source.pixels(number).copy())  # (H, W, 3)
        except BadImageError:
            continue
        values[place] = shrink(pixels.permute(2, 0, 1)[None])[0]
    return values
