"""The float32 error of the Winograd points in `ops/transforms.py`, beside the error of the direct sum.

    python benchmarks/points.py

Prints, for each number of points n, the error of y = A^T [(G g) * (B^T v)] in two dimensions with 64 channels, against
float64 and relative to the rms of the responses. Of all splits of n into F(D, W) it shows the worst.
"""

import torch

from epitomic.ops.transforms import FINITE_POINTS, MAX_POINTS, plane_transforms


def errors(d: int, w: int, channels: int = 64, samples: int = 200) -> tuple[float, float]:
    """Returns the relative rms errors of Winograd and of the direct sum."""
    torch.manual_seed(0)
    n = w + d - 1
    patches = torch.randn(samples, channels, w * w, dtype=torch.float64)
    epitomes = torch.randn(samples, channels, n, n, dtype=torch.float64)
    filters = epitomes.unfold(2, w, 1).unfold(3, w, 1).flatten(4).flatten(2, 3)  # (S, C, D*D, W*W)
    exact = torch.einsum("scpf,scf->sp", filters, patches)
    direct = torch.einsum("scpf,scf->sp", filters.float(), patches.float())
    to = plane_transforms((d, d), (w, w), torch.float32)
    x = patches.float() @ to.patch.t()  # (S, C, n*n)
    u = epitomes.float().flatten(2) @ to.epitome.t()
    winograd = (x * u).sum(1) @ to.output.t()
    rms = exact.square().mean().sqrt()
    return tuple(((y - exact).square().mean().sqrt() / rms).item() for y in (winograd, direct))  # type: ignore[return-value]


def main() -> None:
    print("n  worst F(D, W)  winograd  direct   finite points")
    for n in range(2, MAX_POINTS + 1):
        splits = [(d, n + 1 - d) for d in range(1, n + 1)]
        worst, direct, split = max((*errors(d, w), (d, w)) for d, w in splits)
        points = " ".join(str(p) for p in FINITE_POINTS[n])
        print(f"{n}  F{split}        {worst:.1e}   {direct:.1e}  {points}")


if __name__ == "__main__":
    main()
