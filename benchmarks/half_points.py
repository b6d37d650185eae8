"""The error of Winograd in half precision, counted in roundings of the exact result to the dtype.

    python benchmarks/half_points.py --out results/gpu/half_points.csv

For each number of points per axis it rounds the transformed tensors as the products would, and computes everything else
in float32: responses and the gradients of input and weights, against float64. Errors are root mean squares, those of
the worst split of the points into filters and positions. 1.0 is as much as rounding the result alone loses. It takes
half a minute on one core. The kernels' rule is `ops.triton.rule.kind_of_point_products`.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

import torch
from torch import Tensor

from epitomic.ops.transforms import MAX_POINTS, plane_transforms
from epitomic.support.console import text_table

CHANNELS, OUTPUTS, PATCHES = 64, 48, 200
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
COLUMNS = ("points", "dtype", "products", "responses", "input_gradient", "weight_gradient")


def rounded(x: Tensor, kind: str) -> Tensor:
    """Rounds float32 numbers to what a matrix unit multiplies."""
    if kind in DTYPES:
        return x.to(DTYPES[kind]).float()
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) if kind == "tf32" else x


def step(patches: Tensor, weights: Tensor, dy: Tensor | None, kind: str, sizes: tuple[int, int]) -> list[Tensor]:
    """Computes all responses and both gradients of one split, in the precision of the tensors."""
    patch, weight = sizes
    maps = plane_transforms((patch, patch), (weight, weight), patches.dtype)
    to_outputs = maps.output if maps.output.shape[1] == len(maps.weight) else maps.output.t()  # (D*D, n)
    x = rounded(torch.einsum("np,bpc->nbc", maps.patch, patches), kind)
    u = rounded(torch.einsum("ns,kcs->nkc", maps.weight, weights), kind)
    responses = torch.einsum("dn,nbk->dbk", to_outputs, x @ u.mT)
    if dy is None:  # the gradient of the winners
        best, winners = responses.max(0)
        dy = torch.zeros_like(responses).scatter_(0, winners[None], torch.randn_like(best)[None])
    dm = rounded(torch.einsum("dn,dbk->nbk", to_outputs, dy), kind)
    dx = torch.einsum("np,nbc->bpc", maps.patch, dm @ u)
    dw = torch.einsum("ns,nkc->kcs", maps.weight, dm.mT @ x)
    return [responses, dx, dw, dy]


def errors(points: int, taps: int, dtype: torch.dtype, kind: str) -> list[float]:
    """Returns the errors of the responses and both gradients, for weights that are larger than the patch (Eq. 2)."""
    torch.manual_seed(0)
    patches = torch.randn(PATCHES, taps**2, CHANNELS).relu().to(dtype)
    weights = (torch.randn(OUTPUTS, CHANNELS, points**2) / math.sqrt(CHANNELS * taps**2)).to(dtype)
    *exact, dy = step(patches.double(), weights.double(), None, "exact", (taps, points))
    dy = dy.to(dtype)
    *exact, _ = step(patches.double(), weights.double(), dy.double(), "exact", (taps, points))
    *got, _ = step(patches.float(), weights.float(), dy.float(), kind, (taps, points))
    return [
        ((value - want).norm() / (want.to(dtype) - want).norm()).item() for value, want in zip(got, exact, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE")
    out = parser.parse_args().out
    rows = []
    for points in range(3, MAX_POINTS + 1):
        for name, dtype in DTYPES.items():
            for kind in (name, "tf32", "float32"):
                found = [errors(points, taps, dtype, kind) for taps in range(2, points)]
                worst = [max(column) for column in zip(*found, strict=True)]
                rows.append([str(points), name, kind, *(f"{error:.3g}" for error in worst)])
    print(text_table(COLUMNS, rows, right=range(3, 6)))
    if out:
        with out.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
