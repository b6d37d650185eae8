"""The sizes of a layer: those that the user gives, and those that follow from them.

The names are the paper's: filters of W x W pixels, epitomes of V x V pixels, D x D positions under one maximum. Heights
and widths may differ, so each size is a pair (height, width).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

Pair = tuple[int, int]
Size = int | Sequence[int]

AXES = ("height", "width")


def as_pair(name: str, value: object, *, minimum: int = 1) -> Pair:
    """Reads an int or a pair of ints, which is how ``nn.Conv2d`` takes its sizes.

    >>> as_pair("kernel_size", 3), as_pair("kernel_size", (3, 5))
    ((3, 3), (3, 5))
    """
    pair = (value, value) if _is_int(value) else value
    if not isinstance(pair, Sequence) or len(pair) != 2 or not all(_is_int(v) for v in pair):
        raise TypeError(f"{name} must be an int or a pair of ints, got {value!r}")
    height, width = (int(v) for v in pair)
    if min(height, width) < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value!r}")
    return height, width


def _is_int(value: object) -> bool:
    # The symbolic sizes of torch.export have ``__index__``. So have tensors and arrays, which are no sizes.
    scalar = isinstance(value, Integral) or (hasattr(value, "__index__") and not hasattr(value, "dtype"))
    return scalar and not isinstance(value, bool)


@dataclass(frozen=True)
class Geometry:
    """The sizes of one epitomic layer, checked against each other.

    Attributes:
        epitome: V, the size of the epitomes.
        kernel: W, the size of the filters.
        pool: D, the number of filter positions under one maximum, per axis.
        stride: Step from one patch of the input to the next.
        padding: Rows and columns of padding on each side of the input.
        epitome_stride: e, the step from one filter of an epitome to the next.
    """

    epitome: Pair
    kernel: Pair
    pool: Pair
    stride: Pair
    padding: Pair
    epitome_stride: Pair

    @classmethod
    def create(
        cls,
        *,
        kernel_size: Size,
        pool_size: Size | None,
        stride: Size | None,
        padding: Size,
        epitome_size: Size | None,
        epitome_stride: Size,
    ) -> Geometry:
        """Resolves the defaults and checks the sizes against each other.

        ``pool_size=None`` means one maximum over all positions, ``stride=None`` the pool size, and
        ``epitome_size=None`` the mini-epitome, V = W + (D - 1) e. ``pool_size`` or ``epitome_size`` must be given.
        """
        kernel = as_pair("kernel_size", kernel_size)
        step = as_pair("epitome_stride", epitome_stride)
        pool = None if pool_size is None else as_pair("pool_size", pool_size)
        if epitome_size is not None:
            epitome = as_pair("epitome_size", epitome_size)
        elif pool is not None:
            epitome = _mini_size(kernel, pool, step)
        else:
            raise ValueError("pool_size=None, one maximum over all positions, needs an epitome_size")
        for axis, v, w in zip(AXES, epitome, kernel, strict=True):
            if v < w:
                raise ValueError(f"epitome {axis} {v} is smaller than the filter's {w}: epitome_size >= kernel_size")
        positions = count_windows(epitome, kernel, step)
        pool = pool or positions
        for axis, r, d, v, minimum in zip(AXES, positions, pool, epitome, _mini_size(kernel, pool, step), strict=True):
            if r < d:
                raise ValueError(
                    f"an epitome of {axis} {v} holds {r} filter positions of kernel_size={kernel} and "
                    f"epitome_stride={step}, fewer than pool_size={pool} needs: its {axis} must be at least {minimum}"
                )
        return cls(
            epitome=epitome,
            kernel=kernel,
            pool=pool,
            stride=pool if stride is None else as_pair("stride", stride),
            padding=as_pair("padding", padding, minimum=0),
            epitome_stride=step,
        )

    @property
    def mini(self) -> Pair:
        """Size of a mini-epitome, W + (D - 1) e: the part of an epitome that one output channel uses."""
        return _mini_size(self.kernel, self.pool, self.epitome_stride)

    @property
    def outputs(self) -> Pair:
        """Output channels per epitome and axis: the paper's topographic formula, floor(((V - W)/e + 1 - D) / D) + 1."""
        rows, cols = count_windows(self.epitome, self.kernel, self.epitome_stride)
        return (rows - self.pool[0]) // self.pool[0] + 1, (cols - self.pool[1]) // self.pool[1] + 1

    @property
    def points(self) -> Pair:
        """Points per axis of the Winograd kernel, W/e + D - 1, after `stride_to_channels`."""
        return _points(self.kernel, self.pool, self.epitome_stride)

    @property
    def saved(self) -> float:
        """Factor of multiplications that the Winograd kernel saves."""
        products = math.prod(self.points) * math.prod(self.epitome_stride)
        return math.prod(self.pool) * math.prod(self.kernel) / products

    def output_size(self, height: int, width: int) -> Pair:
        """Returns the output height and width for an input of this size, or raises an error if it is too small."""
        return slide((height, width), self.kernel, self.stride, self.padding)


@dataclass(frozen=True)
class PoolGeometry:
    """Every size of a convolution followed by max-pooling (Eq. 1), checked.

    Attributes:
        kernel: W, the filter size.
        stride: s, the step of the convolution.
        padding: Rows and columns of padding on each side of the input.
        pool: D, the positions under one maximum.
        pool_stride: Step of the pooling windows.
        pool_padding: Rows and columns by which the pooling windows hang over each side of the responses.
        ceil_mode: Whether windows that hang over the end count, too.
    """

    kernel: Pair
    stride: Pair
    padding: Pair
    pool: Pair
    pool_stride: Pair
    pool_padding: Pair
    ceil_mode: bool

    @classmethod
    def create(
        cls,
        *,
        kernel_size: Size,
        stride: Size,
        padding: Size,
        pool_size: Size,
        pool_stride: Size | None,
        pool_padding: Size,
        ceil_mode: bool,
    ) -> PoolGeometry:
        """Resolves the defaults and checks the sizes. ``pool_stride=None`` is the pool size."""
        pool = as_pair("pool_size", pool_size)
        overhang = as_pair("pool_padding", pool_padding, minimum=0)
        if any(2 * p > d for p, d in zip(overhang, pool, strict=True)):
            raise ValueError(f"pool_padding must be at most half of pool_size={pool}, got {pool_padding!r}")
        return cls(
            kernel=as_pair("kernel_size", kernel_size),
            stride=as_pair("stride", stride),
            padding=as_pair("padding", padding, minimum=0),
            pool=pool,
            pool_stride=pool if pool_stride is None else as_pair("pool_stride", pool_stride),
            pool_padding=overhang,
            ceil_mode=bool(ceil_mode),
        )

    @property
    def points(self) -> Pair:
        """Points per axis of the Winograd kernel, W/s + D - 1, after `pooled_stride_to_channels`."""
        return _points(self.kernel, self.pool, self.stride)

    @property
    def saved(self) -> float:
        """Factor of multiplications that the Winograd kernel saves."""
        products = math.prod(self.points) * math.prod(self.stride)
        return math.prod(self.pool_stride) * math.prod(self.kernel) / products

    def responses(self, height: int, width: int) -> Pair:
        """Returns the height and width of the convolution's output, or raises an error if the input is too small."""
        return slide((height, width), self.kernel, self.stride, self.padding)

    def output_size(self, height: int, width: int) -> Pair:
        """Returns the output height and width, as of ``nn.MaxPool2d``, or raises an error if the input is too small."""
        sizes, responses = [], self.responses(height, width)
        for axis, n, d, s, p in zip(AXES, responses, self.pool, self.pool_stride, self.pool_padding, strict=True):
            room = n + 2 * p - d
            size = (-(-room // s) if self.ceil_mode else room // s) + 1
            if self.ceil_mode and (size - 1) * s >= n + p:  # a window must start inside, or in the padding before
                size -= 1
            if size < 1:
                raise ValueError(
                    f"the convolution gives {axis} {n}, too small for pool_size={self.pool} with "
                    f"pool_padding={self.pool_padding}: the input {axis} must be larger"
                )
            sizes.append(size)
        return sizes[0], sizes[1]


@dataclass(frozen=True)
class TileGeometry:
    """The sizes of a plain convolution of step 1 that gives D x D outputs at a time.

    Attributes:
        kernel: W, the filter size.
        padding: Rows and columns of padding on each side of the input.
        responses: Height and width of the output.
        tile: D, the outputs of one patch.
    """

    kernel: Pair
    padding: Pair
    responses: Pair
    tile: Pair

    @property
    def points(self) -> Pair:
        """Points per axis of the Winograd kernel, W + D - 1."""
        return _points(self.kernel, self.tile, (1, 1))

    @property
    def patches(self) -> int:
        """Number of tiles of an image. Those at the end may hang over."""
        (rows, columns), (dh, dw) = self.responses, self.tile
        return -(-rows // dh) * -(-columns // dw)

    @property
    def saved(self) -> float:
        """Factor of multiplications that the Winograd kernel saves."""
        return math.prod(self.responses) * math.prod(self.kernel) / (self.patches * math.prod(self.points))


def slide(size: Pair, kernel: Pair, stride: Pair, padding: Pair) -> Pair:
    """Returns the height and width of a convolution's output, or raises an error if the input is too small."""
    padded = size[0] + 2 * padding[0], size[1] + 2 * padding[1]
    for axis, n, w, p in zip(AXES, padded, kernel, padding, strict=True):
        if n < w:
            raise ValueError(
                f"input {axis} {n - 2 * p} with padding {p} is smaller than the filter's {w}: "
                f"the input {axis} must be at least {w - 2 * p}"
            )
    return count_windows(padded, kernel, stride)


def _points(kernel: Pair, pool: Pair, step: Pair) -> Pair:
    h, w = (-(-w // e) + d - 1 for w, d, e in zip(kernel, pool, step, strict=True))
    return h, w


def _mini_size(kernel: Pair, pool: Pair, step: Pair) -> Pair:
    return kernel[0] + (pool[0] - 1) * step[0], kernel[1] + (pool[1] - 1) * step[1]


def count_windows(size: Sequence[int], window: Sequence[int], step: Sequence[int]) -> Pair:
    """Returns how many windows fit along each axis, ``step`` apart."""
    return (size[0] - window[0]) // step[0] + 1, (size[1] - window[1]) // step[1] + 1
