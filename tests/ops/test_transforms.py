"""The Winograd matrices: exact, and accurate enough on every layer of the paper."""

from fractions import Fraction

import pytest
import torch

from epitomic import epitomic_conv2d
from epitomic.ops.transforms import FINITE_POINTS, MAX_POINTS, winograd_matrices

SIZES = [(d, w) for d in range(1, MAX_POINTS + 1) for w in range(1, MAX_POINTS + 2 - d)]


@pytest.mark.parametrize(("d", "w"), SIZES)
def test_exact_for_every_size(d: int, w: int) -> None:
    """y = A^T [(G g) * (B^T v)] in rationals, for every product of a unit patch with a unit epitome."""
    output, patch, epitome = winograd_matrices(d, w)
    n = w + d - 1
    for i in range(w):
        for j in range(n):
            products = [patch[t][i] * epitome[t][j] for t in range(n)]
            responses = [sum((a * m for a, m in zip(row, products, strict=True)), Fraction(0)) for row in output]
            assert responses == [Fraction(j - i == p) for p in range(d)]


def test_points_are_distinct() -> None:
    for n, points in FINITE_POINTS.items():
        assert len(set(points)) == len(points) == n - 1


@pytest.mark.parametrize(
    ("channels", "kernel", "pool", "stride", "step", "size", "epitome"),
    [
        (3, 8, 3, 4, 2, 60, 12),
        (96, 6, 3, 3, 1, 54, 8),
        (512, 3, 3, 3, 1, 17, 5),
        (3, 8, 3, 4, 2, 60, 36),  # topographic
        (96, 6, 3, 3, 1, 54, 26),
        (512, 3, 3, 3, 1, 17, 26),
    ],
)
@pytest.mark.parametrize("normalize", [False, True])
def test_float32_error_on_the_paper_layers(channels, kernel, pool, stride, step, size, epitome, normalize) -> None:  # type: ignore[no-untyped-def]
    """At most 1e-5 of the largest response, against float64."""
    torch.manual_seed(0)
    x = torch.relu(torch.randn(1, channels, size, size))  # as in a network: the output of a ReLU
    weight = torch.randn(2, channels, epitome, epitome) * (channels * kernel**2) ** -0.5
    options = {"kernel_size": kernel, "pool_size": pool, "stride": stride, "epitome_stride": step}
    options |= {"normalize": normalize}
    exact = epitomic_conv2d(x.double(), weight.double(), **options, algorithm="direct")
    y = epitomic_conv2d(x, weight, **options, algorithm="winograd")
    assert ((y - exact).abs().max() / exact.abs().max()).item() <= 1e-5
