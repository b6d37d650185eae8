"""The Winograd matrices are exact, and accurate enough on every layer of the paper."""

from fractions import Fraction

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from epitomic import epitomic_conv2d
from epitomic.ops.transforms import FINITE_POINTS, MAX_POINTS, axis_transforms, plane_transforms, winograd_matrices

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


@pytest.mark.parametrize(("d", "w"), SIZES)
def test_maps_have_the_order_and_the_zeros_that_the_library_relies_on(d: int, w: int) -> None:
    """The points are zero if their number is even, pairs -t, t, then infinity: in the rounded values of all maps.

    The zeros are those of native/transforms.h.
    """
    n = w + d - 1
    has_zero = n % 2 == 0
    epitome, filter = axis_transforms(w, n, torch.float32), axis_transforms(n, w, torch.float32)
    assert torch.equal(epitome.output, filter.output)
    assert d == 1 or torch.equal(epitome.patch, filter.weight)
    for is_data, matrix in ((False, epitome.patch), (True, epitome.weight), (False, epitome.output.t())):
        size = matrix.shape[1]  # (V, W), (V, V) and (V, D)
        signs = (-1.0) ** torch.arange(size)
        for r in range(int(has_zero), n - 1, 2):
            assert torch.equal(matrix[r] * signs, matrix[r + 1])
        end = n - 1 if is_data else size
        of_zero = range(0, n - 1 if is_data else 1, 2)
        of_pairs = [*range(2 if is_data and has_zero else 0, end, 2), *range(1, end, 2)]
        of_infinity = range((n - 1) % 2 if is_data else size - 1, size, 2)
        rows = [of_zero] * has_zero + [of_pairs] * (n - 1 - has_zero) + [of_infinity]
        for row, columns in zip(matrix, rows, strict=True):
            assert not row[[j for j in range(size) if j not in columns]].any()


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
    """The error against float64 is at most 1e-5 of the largest response."""
    torch.manual_seed(0)
    x = torch.relu(torch.randn(1, channels, size, size))  # as in a network: the output of a ReLU
    weight = torch.randn(2, channels, epitome, epitome) * (channels * kernel**2) ** -0.5
    options = {"kernel_size": kernel, "pool_size": pool, "stride": stride, "epitome_stride": step}
    options |= {"normalize": normalize}
    exact = epitomic_conv2d(x.double(), weight.double(), **options, algorithm="direct")
    y = epitomic_conv2d(x, weight, **options, algorithm="winograd")
    assert ((y - exact).abs().max() / exact.abs().max()).item() <= 1e-5


def test_fake_tensors_are_not_kept() -> None:
    """A call under FakeTensorMode, as torch.compile makes it, leaves real maps for the next call."""
    for make in (plane_transforms, axis_transforms):
        sizes = ((3, 2), (5, 5)) if make is plane_transforms else (3, 5)
        for _ in range(2):
            with FakeTensorMode():
                assert all(isinstance(t, FakeTensor) for t in make(*sizes, torch.float64))
            assert all(type(t) is torch.Tensor for t in make(*sizes, torch.float64))
