"""The sizes of an epitomic layer: what the user may say, and what follows from it.

Names are the paper's: filters of W x W pixels, epitomes of V x V pixels, D x D positions under one maximum. Heights and
widths are free of each other, so each size is a pair (height, width).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

Pair = tuple[int, int]
Size = int | Sequence[int]

AXES = ("height", "width")


def as_pair(name: str, value: object, *, at_least: int = 1) -> Pair:
    """Reads an int or a pair of ints, as ``nn.Conv2d`` takes its sizes.

    >>> as_pair("kernel_size", 3), as_pair("kernel_size", (3, 5))
    ((3, 3), (3, 5))
    """
    pair = (value, value) if _is_int(value) else value
    if not isinstance(pair, Sequence) or len(pair) != 2 or not all(_is_int(v) for v in pair):
        raise TypeError(f"{name} must be an int or a pair of ints, got {value!r}")
    height, width = (int(v) for v in pair)
    if min(height, width) < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value!r}")
    return height, width


def _is_int(value: object) -> bool:
    # ``__index__`` admits the symbolic sizes of torch.export, but also tensors and arrays; bool is an int, not a size.
    scalar = isinstance(value, Integral) or (hasattr(value, "__index__") and not hasattr(value, "dtype"))
    return scalar and not isinstance(value, bool)


@dataclass(frozen=True)
class Geometry:
    """Every size of one epitomic layer, checked.

    Attributes:
        epitome: V, the epitome size.
        kernel: W, the filter size.
        pool: D, the positions under one maximum.
        stride: Step of the patches in the input.
        padding: Rows and columns of padding on each side of the input.
        epitome_stride: e, the step of the filters inside the epitome.
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

        ``pool_size=None`` is one maximum over all positions; ``stride=None`` is the pool size; ``epitome_size=None`` is
        the mini-epitome, V = W + (D - 1) e. One of ``pool_size`` and ``epitome_size`` must be given.
        """
        kernel = as_pair("kernel_size", kernel_size)
        step = as_pair("epitome_stride", epitome_stride)
        if pool_size is not None:
            pool = as_pair("pool_size", pool_size)
        if epitome_size is None:
            if pool_size is None:
                raise ValueError("pool_size=None, one maximum over all positions, needs an epitome_size")
            epitome = _mini_size(kernel, pool, step)
        else:
            epitome = as_pair("epitome_size", epitome_size)
        for axis, v, w in zip(AXES, epitome, kernel, strict=True):
            if v < w:
                raise ValueError(f"epitome {axis} {v} is smaller than the filter's {w}: epitome_size >= kernel_size")
        positions = _positions(epitome, kernel, step)
        if pool_size is None:
            pool = positions
        for axis, r, d, v, least in zip(AXES, positions, pool, epitome, _mini_size(kernel, pool, step), strict=True):
            if r < d:
                raise ValueError(
                    f"an epitome of {axis} {v} holds {r} filter positions of kernel_size={kernel} and "
                    f"epitome_stride={step}, fewer than pool_size={pool} needs: its {axis} must be at least {least}"
                )
        return cls(
            epitome=epitome,
            kernel=kernel,
            pool=pool,
            stride=pool if stride is None else as_pair("stride", stride),
            padding=as_pair("padding", padding, at_least=0),
            epitome_stride=step,
        )

    @property
    def mini(self) -> Pair:
        """Size of a mini-epitome, W + (D - 1) e: what one output value reads."""
        return _mini_size(self.kernel, self.pool, self.epitome_stride)

    @property
    def outputs(self) -> Pair:
        """Outputs per epitome and axis, floor(((V - W)/e + 1 - D) / D) + 1 (the paper's topographic formula)."""
        rows, cols = _positions(self.epitome, self.kernel, self.epitome_stride)
        return (rows - self.pool[0]) // self.pool[0] + 1, (cols - self.pool[1]) // self.pool[1] + 1

    @property
    def points(self) -> Pair:
        """Points W/e + D - 1 per axis of the Winograd kernel, after the epitome stride has gone into channels."""
        h, w = (-(-w // e) + d - 1 for w, d, e in zip(self.kernel, self.pool, self.epitome_stride, strict=True))
        return h, w

    def output_size(self, height: int, width: int) -> Pair:
        """Output height and width for an input of this size; an error if there is none."""
        sizes = []
        for axis, n, w, s, p in zip(AXES, (height, width), self.kernel, self.stride, self.padding, strict=True):
            if n + 2 * p < w:
                raise ValueError(
                    f"input {axis} {n} with padding {p} is smaller than the filter's {w}: "
                    f"the input {axis} must be at least {w - 2 * p}"
                )
            sizes.append((n + 2 * p - w) // s + 1)
        return sizes[0], sizes[1]


def _mini_size(kernel: Pair, pool: Pair, step: Pair) -> Pair:
    return kernel[0] + (pool[0] - 1) * step[0], kernel[1] + (pool[1] - 1) * step[1]


def _positions(epitome: Pair, kernel: Pair, step: Pair) -> Pair:
    return (epitome[0] - kernel[0]) // step[0] + 1, (epitome[1] - kernel[1]) // step[1] + 1
