"""Winograd's minimal filtering F(D, W), built exactly.

For a patch g of W values and an epitome d of V = W + D - 1 values, the D responses of g at the positions of d are

    y = A^T [ (G g) * (B^T d) ],

V multiplications instead of D W. The matrices come from Toom-Cook evaluation at V - 1 finite points and infinity: they
are made in rationals and rounded once. In two dimensions each map is applied along both axes.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

MAX_POINTS = 8

# Finite points for each number of points n, infinity excluded: symmetric about 0 and near tan(k pi / n), chosen among
# small fractions by float32 error (benchmarks/points.py measures them).
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
    """The three maps of F(D, W) along one axis: A^T (D, V), G (V, W) and B^T (V, V)."""

    output: Tensor
    patch: Tensor
    epitome: Tensor


@cache
def winograd_matrices(d: int, w: int) -> tuple[Matrix, Matrix, Matrix]:
    """Exact A^T (D, V), G (V, W) and B^T (V, V) of F(D, W), rows of G and B balanced, the rest of the scale in A.

    Linear convolution of polynomials of W and D coefficients is evaluation at the points, multiplication, and
    interpolation: (E^-1) [(E_W g) * (E_D y)]. Correlation, which is what matching does, is its transpose: the
    evaluation of D coefficients becomes A^T and the interpolation becomes B^T.
    """
    n = w + d - 1
    points = FINITE_POINTS[n]
    evaluate = [[t**j for j in range(n)] for t in points] + [[Fraction(j == n - 1) for j in range(n)]]
    interpolate = _inverse(evaluate)  # (V, V): coefficients from values
    epitome = [list(column) for column in zip(*interpolate, strict=True)]  # transposed: (V, V)
    patch = _truncated(evaluate, w)
    output = _truncated(evaluate, d)
    for i in range(n):  # row i of G and of B^T to unit norm, to the nearest power of two: scaling is then exact
        for rows in (patch, epitome):
            scale = _power_of_two_near(sum((v * v for v in rows[i]), Fraction(0)))
            rows[i] = [v / scale for v in rows[i]]
            output[i] = [v * scale for v in output[i]]
    return [list(row) for row in zip(*output, strict=True)], patch, epitome


def _truncated(evaluate: Matrix, size: int) -> Matrix:
    """Evaluation of polynomials of ``size`` coefficients: at infinity, that is the leading coefficient."""
    return [row[:size] for row in evaluate[:-1]] + [[Fraction(j == size - 1) for j in range(size)]]


def _inverse(matrix: Matrix) -> Matrix:
    """Gauss-Jordan elimination in rationals."""
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
    """The power of two nearest to the root of ``square``, on a log scale."""
    exponent = 0
    while square * Fraction(4) ** -exponent >= 2:
        exponent += 1
    while square * Fraction(4) ** -exponent < Fraction(1, 2):
        exponent -= 1
    return Fraction(2) ** exponent


@cache
def axis_transforms(d: int, w: int, dtype: torch.dtype) -> Transforms:
    """The maps of F(D, W) along one axis as CPU tensors, each entry rounded once."""
    return Transforms(*(_tensor(m, dtype) for m in winograd_matrices(d, w)))


@cache
def plane_transforms(pool: tuple[int, int], kernel: tuple[int, int], dtype: torch.dtype) -> Transforms:
    """The maps of F(Dh x Dw, Wh x Ww) on flattened planes: the Kronecker products of the two axes, rounded once."""
    rows, cols = winograd_matrices(pool[0], kernel[0]), winograd_matrices(pool[1], kernel[1])
    return Transforms(*(_tensor(_kron(a, b), dtype) for a, b in zip(rows, cols, strict=True)))


def _kron(a: Matrix, b: Matrix) -> Matrix:
    return [[p * q for p in row_a for q in row_b] for row_a in a for row_b in b]


def _tensor(matrix: Matrix, dtype: torch.dtype) -> Tensor:
    return torch.tensor([[float(v) for v in row] for row in matrix], dtype=torch.float64).to(dtype)
