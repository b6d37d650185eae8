"""The matrices of Winograd's minimal filtering F(D, W), made exactly.

For a filter g of W values and data d of V = W + D - 1 values, the D responses of g at the positions of d are

    y = A^T [ (G g) * (B^T d) ],

which takes V multiplications instead of D W. In Eq. 2, a patch is the filter and an epitome the data. In Eq. 1, which
is convolution and max-pooling, a patch is the data. The matrices come from Toom-Cook evaluation at V - 1 finite points
and infinity. They are made of fractions and rounded once. In two dimensions, each map is applied along both axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor

from epitomic.geometry import Pair
from epitomic.ops.tracing import is_in_tensor_mode

MAX_POINTS = 8

# The finite points for each number of points n: symmetric about 0, near tan(k pi / n), and chosen among small fractions
# for the smallest float32 error (benchmarks/points.py measures it). Infinity is always the last point. The C++ relies
# on their order: zero if n is even, then pairs -t, t.
FINITE_POINTS: dict[int, tuple[Fraction, ...]] = {
    n: tuple(Fraction(p) for p in points.split())
    for n, points in {
        1: "",
        2: "0",
        3: "-3/5 3/5",
        4: "0 -1 1",
        5: "-3/8 3/8 -5/4 5/4",
        6: "0 -2/3 2/3 -3/2 3/2",
        7: "-1/4 1/4 -4/5 4/5 -2 2",
        8: "0 -1/2 1/2 -1 1 -2 2",
    }.items()
}

Matrix = list[list[Fraction]]


class Transforms(NamedTuple):
    """The three maps of F(D, W) along one axis: A^T (D, V), and those of patch (V, P) and weights (V, S).

    G (V, W) is the map of the filter and B^T (V, V) the map of the data.
    """

    output: Tensor
    patch: Tensor
    weight: Tensor


@cache
def winograd_matrices(d: int, w: int) -> tuple[Matrix, Matrix, Matrix]:
    """Returns A^T (D, V), G (V, W) and B^T (V, V) of F(D, W) in fractions.

    The product of polynomials of W and D coefficients is evaluation at the points, multiplication, and interpolation:
    (E^-1) [(E_W g) * (E_D y)]. Matching is correlation, the transpose of that product: the evaluation of D coefficients
    becomes A^T, and the interpolation becomes B^T. The rows of G and B^T are scaled to about unit norm, and A^T takes
    the inverse scale.
    """
    n = w + d - 1
    points = FINITE_POINTS[n]
    evaluate = [[t**j for j in range(n)] for t in points] + [[Fraction(j == n - 1) for j in range(n)]]
    interpolate = _inverse(evaluate)  # (V, V): coefficients from values
    data = [list(column) for column in zip(*interpolate, strict=True)]  # transposed: (V, V)
    filter = _truncated(evaluate, w)
    output = _truncated(evaluate, d)
    for i in range(n):  # scales by powers of two, which is exact in floats
        for rows in (filter, data):
            scale = _power_of_two_near(sum((v * v for v in rows[i]), Fraction(0)))
            rows[i] = [v / scale for v in rows[i]]
            output[i] = [v * scale for v in output[i]]
    return [list(row) for row in zip(*output, strict=True)], filter, data


def _truncated(evaluate: Matrix, size: int) -> Matrix:
    """Returns the evaluation of polynomials of ``size`` coefficients. At infinity, it is the leading coefficient."""
    return [row[:size] for row in evaluate[:-1]] + [[Fraction(j == size - 1) for j in range(size)]]


def _inverse(matrix: Matrix) -> Matrix:
    """Inverts by Gauss-Jordan elimination in fractions."""
    n = len(matrix)
    rows = [list(row) + [Fraction(i == j) for j in range(n)] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = next(r for r in range(i, n) if rows[r][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for r in range(n):
            if r != i and rows[r][i] != 0:
                rows[r] = [a - rows[r][i] * b for a, b in zip(rows[r], rows[i], strict=True)]
    return [row[n:] for row in rows]


def _power_of_two_near(square: Fraction) -> Fraction:
    """Returns the power of two nearest to the root of ``square``, on a log scale."""
    return Fraction(2) ** math.floor(math.log2(square) / 2 + 0.5)


def _roles(patch: int, weight: int) -> tuple[Matrix, Matrix, Matrix]:
    """Returns the maps of output, patch and weights along one axis. The larger of patch and weights is the data."""
    output, filter, data = winograd_matrices(abs(patch - weight) + 1, min(patch, weight))
    return (output, filter, data) if patch <= weight else (output, data, filter)


def coefficient(role: str, patch: int, weight: int, row: int, column: int) -> float:
    """Returns one entry of a map of `Transforms` along one axis. ``role`` is ``"output"``, ``"patch"`` or ``"weight"``.

    >>> coefficient("output", 1, 1, 0, 0)
    1.0
    """
    return float(_roles(patch, weight)[Transforms._fields.index(role)][row][column])


def _kept_if_real(make: Callable[..., Transforms]) -> Callable[..., Transforms]:
    """Keeps what ``make`` returns, unless tensors are fake or traced now: those would be taken for real ones later."""
    kept = cache(make)

    @wraps(make)
    def made(*sizes: Any) -> Transforms:
        return make(*sizes) if is_in_tensor_mode() else kept(*sizes)

    return made


@_kept_if_real
def axis_transforms(patch: int, weight: int, dtype: torch.dtype) -> Transforms:
    """Returns the maps for patches of P values and weights of S along one axis, as CPU tensors rounded once."""
    return Transforms(*(_tensor(m, dtype) for m in _roles(patch, weight)))


@_kept_if_real
def plane_transforms(patch: Pair, weight: Pair, dtype: torch.dtype) -> Transforms:
    """Returns the maps on flattened planes: Kronecker products of both axes, rounded once."""
    rows, cols = _roles(patch[0], weight[0]), _roles(patch[1], weight[1])
    return Transforms(*(_tensor(_kron(a, b), dtype) for a, b in zip(rows, cols, strict=True)))


def _kron(a: Matrix, b: Matrix) -> Matrix:
    return [[p * q for p in row_a for q in row_b] for row_a in a for row_b in b]


def _tensor(matrix: Matrix, dtype: torch.dtype) -> Tensor:
    return torch.tensor([[float(v) for v in row] for row in matrix], dtype=torch.float64, device="cpu").to(dtype)
