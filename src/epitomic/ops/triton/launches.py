"""What each launch of a Triton kernel looks like: grid, tiles and constants, from the sizes of a call.

Nothing here needs Triton or a tensor. So the same launches are run (`fused`, `winograd`), compiled ahead of time and
counted (`counts`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from epitomic.geometry import Pair
from epitomic.ops.operands import Grid, Operands

PROGRAMS = 512  # programs that keep a large GPU busy. A constant, so that sums have the same order on every GPU
SLOWDOWN = {128: 1.0, 64: 1.05, 32: 1.3, 16: 2.0}  # a guess: what a narrow tile costs by loading more per product
VECTOR = 8  # channels or outputs that are loaded at once

Constants = dict[str, int | str]


class Sizes(NamedTuple):
    """The sizes of a call, as numbers. Pairs are (height, width).

    Attributes:
        images: N.
        size: H, W of the input.
        channels: C.
        outputs: K.
        weight: S, the size of the weights.
        grid: Where the patches lie, and which of their responses count.
        dtype: The dtype of the input.
        precision: How float32 is multiplied, ``"tf32"`` or ``"ieee"``.
    """

    images: int
    size: Pair
    channels: int
    outputs: int
    weight: Pair
    grid: Grid
    dtype: torch.dtype
    precision: str

    @classmethod
    def of(cls, operands: Operands) -> Sizes:
        """Returns the sizes of a call on (N, H, W, C) input."""
        (n, h, w, c), (k, _, sh, sw) = operands.x.shape, operands.weights.shape
        return cls(n, (h, w), c, k, (sh, sw), operands.grid, operands.x.dtype, float32_precision(operands.x.dtype))

    @property
    def taps(self) -> Pair:
        """Size of the filters."""
        (ph, pw), (sh, sw) = self.grid.patch, self.weight
        return min(ph, sh), min(pw, sw)

    @property
    def pool(self) -> Pair:
        """D, the positions under one maximum."""
        (ph, pw), (sh, sw) = self.grid.patch, self.weight
        return abs(ph - sh) + 1, abs(pw - sw) + 1

    @property
    def slides(self) -> tuple[bool, bool]:
        """Whether the filters slide over the patch (Eq. 1), not the patch over the epitome (Eq. 2)."""
        return self.grid.patch[0] > self.weight[0], self.grid.patch[1] > self.weight[1]

    @property
    def patches(self) -> int:
        """Number of patches of all images."""
        return self.images * math.prod(self.grid.outputs)

    @property
    def blocks(self) -> Pair:
        """Rows and columns of blocks of stride x stride pixels that cover the input."""
        (h, w), (bh, bw), (sh, sw) = self.size, self.grid.before, self.grid.stride
        return _cdiv(h + bh, sh), _cdiv(w + bw, sw)

    @property
    def padded(self) -> bool:
        """Whether some patch reaches beyond the input."""
        grid = self.grid
        ends = [(o - 1) * s + p - b > size for size, p, s, b, o in zip(self.size, *grid[:4], strict=True)]
        return any(grid.before) or any(ends)

    @property
    def all_count(self) -> bool:
        """Whether all responses count."""
        grid = self.grid
        last = [
            (o - 1) * s + d - 1 - skipped < end
            for d, s, o, skipped, end in zip(self.pool, grid.stride, grid.outputs, *grid[4:6], strict=True)
        ]
        return not any(grid.skipped) and all(last)

    def geometry(self) -> Constants:
        """Returns the constants that all kernels over patches share."""
        constants: Constants = {"C": self.channels}
        pairs = {"STRIDE": self.grid.stride, "BEFORE": self.grid.before, "TAPS": self.taps, "POOL": self.pool}
        for name, (height, width) in (pairs | {"SLIDE": self.slides}).items():
            constants |= {f"{name}_H": height, f"{name}_W": width}
        return constants


class Launch(NamedTuple):
    """One launch of a kernel.

    Attributes:
        kernel: Its name in `fused_kernels` or `winograd_kernels`.
        grid: Number of programs along three axes.
        numbers: Its arguments that are numbers, by name.
        constants: Its ``tl.constexpr`` arguments.
        warps: Warps of a program.
        stages: Tiles that are loaded ahead.
        options: Further options of Triton's compiler.
    """

    kernel: str
    grid: tuple[int, int, int]
    numbers: dict[str, int]
    constants: Constants
    warps: int
    stages: int
    options: dict[str, int]


def float32_precision(dtype: torch.dtype) -> str:
    """Returns ``"tf32"`` where torch allows it for float32 matrices, else ``"ieee"``."""
    return "tf32" if dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32 else "ieee"


def forward_launch(sizes: Sizes, *, bias: bool, gain: bool, wide: bool = False) -> Launch:
    """The launch of `fused_kernels.match_forward`."""
    grid = sizes.grid
    m, n, k, warps, stages = _tiles(sizes, sizes.patches, sizes.outputs, sizes.taps[1] * sizes.channels, 64)
    numbers = _shape(sizes)
    numbers |= {"ROWS_COUNTED": grid.responses[0], "COLUMNS_COUNTED": grid.responses[1]}
    numbers |= {"POSITIONS": math.prod(sizes.pool), "STEPS": sizes.taps[0] * _cdiv(sizes.taps[1] * sizes.channels, k)}
    constants = sizes.geometry() | {
        "K": sizes.outputs,
        "SKIPPED_H": grid.skipped[0],
        "SKIPPED_W": grid.skipped[1],
        "HAS_BIAS": bias,
        "HAS_GAIN": gain,
        "PADDED": sizes.padded,
        "ALL_COUNT": sizes.all_count,
    }
    constants |= _products(sizes, m, n, k, wide)
    tiles = _cdiv(sizes.patches, m), _cdiv(sizes.outputs, n), 1
    return Launch("match_forward", tiles, numbers, constants, warps, stages, matrix_options())


def input_launch(sizes: Sizes, *, wide: bool = False) -> Launch:
    """The launch of `fused_kernels.input_gradient`."""
    rows, columns = sizes.images * math.prod(sizes.blocks), math.prod(sizes.grid.stride) * sizes.channels
    m, n, k, warps, stages = _tiles(sizes, rows, columns, sizes.outputs, 64)
    constants = sizes.geometry() | {"K": sizes.outputs} | _products(sizes, m, n, k, wide)
    numbers = _shape(sizes) | {"POSITIONS": math.prod(sizes.pool)}
    return Launch(
        "input_gradient", (_cdiv(rows, m), _cdiv(columns, n), 1), numbers, constants, warps, stages, matrix_options()
    )


def weight_launch(sizes: Sizes, *, wide: bool = False) -> Launch:
    """The launch of `fused_kernels.weight_gradient`. Its third axis has the slices of the patches."""
    columns = sizes.weight[1] * sizes.channels
    m, n, k, warps, stages = _tiles(sizes, sizes.outputs, columns, sizes.patches, max(32, _weight_columns(sizes)))
    tiles = sizes.weight[0] * _cdiv(columns, n), _cdiv(sizes.outputs, m)
    size, slices = _slices(sizes.patches, k, math.prod(tiles))
    numbers = _shape(sizes) | {"SLICE": size}
    constants = sizes.geometry() | {"K": sizes.outputs, "PADDED": sizes.padded} | _products(sizes, m, n, k, wide)
    return Launch("weight_gradient", (*tiles, slices), numbers, constants, warps, stages, matrix_options())


def scale_launch(sizes: Sizes) -> Launch:
    """The launch of `fused_kernels.scale_gradient`."""
    constants: Constants = {"K": sizes.outputs, "BLOCK_M": 32, "BLOCK_N": 64}
    return Launch("scale_gradient", (_cdiv(sizes.patches, 32), 1, 1), {"PATCHES": sizes.patches}, constants, 4, 1, {})


def sums_launch(sizes: Sizes, *, bias: bool) -> Launch:
    """The launch of `fused_kernels.gain_sums`. Its third axis has the slices of the patches."""
    positions = math.prod(sizes.pool)
    tiles = _cdiv(sizes.outputs, 64)
    size, slices = _slices(sizes.patches, 32, tiles * positions)
    constants: Constants = {
        "K": sizes.outputs,
        "POSITIONS": positions,
        "HAS_BIAS": bias,
        "BLOCK_M": 32,
        "BLOCK_N": 64,
    }
    numbers = {"PATCHES": sizes.patches, "SLICE": size}
    return Launch("gain_sums", (tiles, positions, slices), numbers, constants, 4, 1, {})


def points_launch(sizes: Sizes, first: int, images: int, *, centred: bool) -> Launch:
    """The launch of `winograd_kernels.patches_to_points` for some images, from the number of their first patch on."""
    patches = images * math.prod(sizes.grid.outputs)
    constants = _transforms(sizes) | _strides(sizes) | {"C": sizes.channels, "CENTRED": centred, "PADDED": sizes.padded}
    numbers = _shape(sizes) | {"FIRST": first, "PATCHES": patches}
    del numbers["N"]
    return _elementwise("patches_to_points", patches, sizes.channels, numbers, constants)


def maximum_launch(sizes: Sizes, first: int, images: int, *, bias: bool, gain: bool) -> Launch:
    """The launch of `winograd_kernels.products_to_maximum`."""
    grid, (oh, ow) = sizes.grid, sizes.grid.outputs
    patches = images * oh * ow
    numbers = {"FIRST": first, "PATCHES": patches, "OH": oh, "OW": ow, "K": sizes.outputs}
    numbers |= {"ROWS_COUNTED": grid.responses[0], "COLUMNS_COUNTED": grid.responses[1]}
    constants = _transforms(sizes) | {"HAS_BIAS": bias, "HAS_GAIN": gain, "ALL_COUNT": sizes.all_count}
    constants |= {"STRIDE_H": grid.stride[0], "STRIDE_W": grid.stride[1]}
    constants |= {"SKIPPED_H": grid.skipped[0], "SKIPPED_W": grid.skipped[1]}
    each = 1 if math.prod(sizes.pool) > 16 else 2  # what fits the registers
    return _elementwise("products_to_maximum", patches, sizes.outputs, numbers, constants, each)


def products_launch(sizes: Sizes, first: int, images: int) -> Launch:
    """The launch of `winograd_kernels.winners_to_products`."""
    patches = images * math.prod(sizes.grid.outputs)
    numbers = {"FIRST": first, "PATCHES": patches, "K": sizes.outputs}
    return _elementwise("winners_to_products", patches, sizes.outputs, numbers, _transforms(sizes))


def pixels_launch(sizes: Sizes, image: int, images: int) -> Launch:
    """The launch of `winograd_kernels.points_to_pixels` for ``images`` images from ``image`` on."""
    patches = images * math.prod(sizes.grid.outputs)
    numbers = {"IMAGE": image, "IMAGES": images, "PATCHES": patches} | _shape(sizes)
    del numbers["N"]
    constants = _transforms(sizes) | _strides(sizes) | {"C": sizes.channels}
    return _elementwise("points_to_pixels", images * math.prod(sizes.blocks), sizes.channels, numbers, constants, 1)


def multiply_launch(
    points: int, rows: int, columns: int, terms: int, *, transposed: tuple[bool, bool], precision: str
) -> Launch:
    """The launch of `winograd_kernels.multiply_points`.

    Args:
        points: Number of products.
        rows: Rows of the left matrices and of the products.
        columns: Columns of the right matrices and of the products.
        terms: Columns of the left matrices and rows of the right ones.
        transposed: Whether the left and the right matrices are stored transposed.
        precision: ``"tf32"`` or ``"ieee"``.
    """
    left, right = transposed
    numbers = {"M": rows, "N": columns, "K": terms}
    numbers |= {"STRIDE_AM": 1 if left else terms, "STRIDE_AK": rows if left else 1}
    numbers |= {"STRIDE_BK": 1 if right else columns, "STRIDE_BN": terms if right else 1}
    ragged = (left and rows % 4 != 0) or terms % 4 != 0 or columns % 4 != 0
    m, n, k = _tile(rows, 64), _tile(columns, 64), _tile(terms, 16 if ragged else 32)
    constants: Constants = {"PRECISION": precision, "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
    warps, stages = (max(1, min(8, m * n // 256)), 2) if on_amd() else (4, 3)
    grid = _cdiv(rows, m), _cdiv(columns, n), points
    return Launch("multiply_points", grid, numbers, constants, warps, stages, matrix_options())


def _elementwise(
    kernel: str, rows: int, columns: int, numbers: dict[str, int], constants: Constants, each: int = 2
) -> Launch:
    """Returns a launch over tiles of 128 threads, with ``each`` elements for each of them."""
    n = _tile(columns, 64)
    m = 128 * each // n
    tiles = _cdiv(rows, m), _cdiv(columns, n), 1
    return Launch(kernel, tiles, numbers, constants | {"BLOCK_M": m, "BLOCK_N": n}, 4, 1, {})


def _transforms(sizes: Sizes) -> Constants:
    (ph, pw), (sh, sw) = sizes.grid.patch, sizes.weight
    return {"PATCH_H": ph, "PATCH_W": pw, "WEIGHT_H": sh, "WEIGHT_W": sw}


def _strides(sizes: Sizes) -> Constants:
    (sh, sw), (bh, bw) = sizes.grid.stride, sizes.grid.before
    return {"STRIDE_H": sh, "STRIDE_W": sw, "BEFORE_H": bh, "BEFORE_W": bw}


def _shape(sizes: Sizes) -> dict[str, int]:
    (h, w), (oh, ow) = sizes.size, sizes.grid.outputs
    return {"N": sizes.images, "H": h, "W": w, "OH": oh, "OW": ow}


def _products(sizes: Sizes, m: int, n: int, k: int, wide: bool) -> Constants:
    return {"PRECISION": sizes.precision, "WIDE": wide, "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}


def _tiles(sizes: Sizes, rows: int, columns: int, terms: int, widest: int = 128) -> tuple[int, int, int, int, int]:
    """Returns the tile of rows, columns and terms of the sum, and the warps and stages of its program.

    Narrow tiles leave less of the last one unused, wide ones load less per product. ``widest`` is what fits the
    registers. Smaller tiles fit where more registers are needed:

    - strict float32 takes no matrix units on NVIDIA's GPUs, so its products are in registers;
    - channels or outputs that are no whole vectors are loaded one by one, each with an address and a mask of its own;
    - AMD's GPUs keep masks in scalar registers, of which there are few.
    """
    strict, amd = sizes.dtype == torch.float32 and sizes.precision == "ieee", on_amd()
    ragged = sizes.channels % VECTOR != 0 or sizes.outputs % VECTOR != 0
    m = _tile(rows, 64 if strict or ragged else 128)
    n = _tile(columns, widest // 2 if strict or ragged else widest)
    k = _tile(terms, 16 if strict else 32 if amd or sizes.dtype == torch.float32 else 64)
    if ragged:
        k = max(16, k // 2)
    if amd:
        m = min(m, (2048 if ragged else 4096) // n)
        return m, n, k, max(1, min(8, m * n // 256)), 2
    if strict:
        m = min(m, 1024 // n) if ragged else m
        return m, n, k, 8 if m * n > 2048 else 4, 2
    return m, n, k, 8 if max(m, n) > 64 else 4, 3


def matrix_options() -> dict[str, int]:
    """Returns the compiler's options for kernels that multiply matrices.

    NVIDIA's assembler may spill a few registers so that more programs run at once, unless it is told how many it may
    use. AMD's matrix instructions come in two shapes. With the smaller one, each warp has a part of its own.
    """
    return {"matrix_instr_nonkdim": 16} if on_amd() else {"maxnreg": 255}


def on_amd() -> bool:
    """Whether torch is built for AMD's GPUs."""
    return torch.version.hip is not None


def _tile(size: int, largest: int) -> int:
    """Returns the side of a tile, a power of two, that covers ``size`` at the least cost."""
    sides = [side for side in SLOWDOWN if side <= largest]
    return min(sides, key=lambda side: _cdiv(size, side) * side * SLOWDOWN[side])


def _weight_columns(sizes: Sizes) -> int:
    """Returns the width of a tile that computes the weights' gradient at the least cost.

    A tile takes all positions that reach any of its columns. So a wide one multiplies more zeros at the borders.
    """
    (_, taps), (_, pool), (_, slides), columns = sizes.taps, sizes.pool, sizes.slides, sizes.weight[1] * sizes.channels

    def cost(side: int) -> float:
        positions = 0
        for start in range(0, columns, side):
            first, last = start // sizes.channels, (min(start + side, columns) - 1) // sizes.channels
            positions += pool if slides else min(pool, last + 1) - max(0, first - taps + 1)
        return positions * side * SLOWDOWN[side]

    return min(SLOWDOWN, key=cost)


def _slices(patches: int, block: int, programs: int) -> tuple[int, int]:
    """Divides the patches into slices of whole blocks, so that there are some `PROGRAMS`: their size and number."""
    blocks = _cdiv(patches, block)
    size = block * _cdiv(blocks, max(1, min(blocks, PROGRAMS // programs)))
    return size, _cdiv(patches, size)


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)
