"""Every algorithm against `reference`, over random layers; then the rules that hold for all of them."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from epitomic import epitomic_conv2d
from epitomic.functional import ALGORITHMS, choose_algorithm
from epitomic.geometry import Geometry
from epitomic.ops.library import NATIVE
from epitomic.ops.transforms import MAX_POINTS
from tests.problems import Problem, assert_same, problems

FAST = [a for a in ALGORITHMS if a not in ("auto", "reference", *([] if NATIVE.library else ["native"]))]


@pytest.mark.parametrize("algorithm", ["auto", *FAST])
@given(problem=problems())
def test_same_as_reference(algorithm: str, problem: Problem) -> None:
    if algorithm not in ("auto", "direct") and max(problem.geometry.points) > MAX_POINTS:
        with pytest.raises(ValueError, match=f"algorithm='{algorithm}' cannot serve this call: .* points"):
            problem.run(algorithm)
    elif algorithm == "native" and problem.x.dtype != torch.float32:
        with pytest.raises(ValueError, match=r"algorithm='native' cannot serve this call: .* float32"):
            problem.run(algorithm)
    else:
        assert_same(problem, algorithm)


@pytest.mark.parametrize("algorithm", ["reference", "direct", "winograd"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("kernel", "pool", "stride", "epitome", "step"),
    [
        (3, 2, 2, 4, 1),  # mini-epitome
        ((2, 3), (3, 1), (1, 2), (4, 3), 1),  # height and width free of each other
        (4, 2, 2, 6, 2),  # epitome stride, into channels of the image
        (3, 2, 3, 5, 2),  # epitome stride that divides neither filter nor stride
        (2, 2, 3, 5, 1),  # topographic: 2 x 2 outputs per epitome
        (1, 1, 1, 1, 1),  # degenerate
    ],
)
def test_gradcheck(algorithm, normalize, kernel, pool, stride, epitome, step) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    geometry = Geometry.create(
        kernel_size=kernel, pool_size=pool, stride=stride, padding=1, epitome_size=epitome, epitome_stride=step
    )
    x = torch.randn(1, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 2, *geometry.epitome, dtype=torch.float64, requires_grad=True)
    outputs = 2 * geometry.outputs[0] * geometry.outputs[1]
    bias = torch.randn(outputs, dtype=torch.float64, requires_grad=True)

    def call(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return epitomic_conv2d(
            x,
            weight,
            bias,
            kernel_size=kernel,
            pool_size=pool,
            stride=stride,
            padding=1,
            epitome_stride=step,
            normalize=normalize,
            algorithm=algorithm,
        )

    assert torch.autograd.gradcheck(call, (x, weight, bias))


@pytest.mark.parametrize("algorithm", ["reference", *FAST])
@pytest.mark.parametrize("normalize", [False, True])
def test_ties_go_to_the_lowest_position(algorithm: str, normalize: bool) -> None:
    weight = torch.randn(3, 2, 5, 5)
    x = torch.zeros(1, 2, 9, 9, requires_grad=True)  # every response is zero
    y, positions = epitomic_conv2d(
        x, weight, kernel_size=3, pool_size=3, normalize=normalize, algorithm=algorithm, return_positions=True
    )
    assert torch.equal(positions, torch.zeros_like(positions))
    y.sum().backward()
    first = weight[:, :, :3, :3]
    if normalize:
        first = first - first.mean((1, 2, 3), keepdim=True)
        first = first / (first.square().sum((1, 2, 3), keepdim=True) + 0.01).sqrt()
    assert x.grad is not None
    torch.testing.assert_close(x.grad[:, :, :3, :3], first.sum(0, keepdim=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", ["reference", *FAST])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_in_nan_out(algorithm: str, normalize: bool, value: float) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(1, 2, 8, 8), torch.randn(3, 2, 4, 4)
    x[0, 1, 2, 2] = value  # in the second row and column of patches, of stride 2 and size 3, only: (1, 1) and its left
    y, positions = epitomic_conv2d(
        x, weight, kernel_size=3, pool_size=2, normalize=normalize, algorithm=algorithm, return_positions=True
    )
    touched = torch.zeros(3, 3, dtype=torch.bool)
    touched[:2, :2] = True
    assert not y[:, :, touched].isfinite().any()
    assert y[:, :, ~touched].isfinite().all()
    if value != value:
        assert y[:, :, touched].isnan().all()
    assert positions.min() >= 0
    assert positions.max() < 4


@pytest.mark.parametrize("algorithm", ["auto", *FAST])
def test_memory_format_is_kept(algorithm: str) -> None:
    weight = torch.randn(8, 6, 4, 4)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 6, 9, 9).contiguous(memory_format=memory_format).requires_grad_()
        y = epitomic_conv2d(x, weight, kernel_size=3, pool_size=2, algorithm=algorithm)
        assert y.is_contiguous(memory_format=memory_format)
        assert torch.autograd.grad(y.sum(), x)[0].is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize("algorithm", ["auto", *FAST])
def test_one_image_without_a_batch(algorithm: str) -> None:
    x, weight = torch.randn(3, 10, 12), torch.randn(4, 3, 5, 5)
    y, p = epitomic_conv2d(x, weight, kernel_size=4, pool_size=2, algorithm=algorithm, return_positions=True)
    batch_y, batch_p = epitomic_conv2d(
        x[None], weight, kernel_size=4, pool_size=2, algorithm=algorithm, return_positions=True
    )
    assert torch.equal(y, batch_y[0])
    assert torch.equal(p, batch_p[0])


def test_autocast_leaves_double_alone_and_says_so() -> None:
    with torch.autocast("cpu"), pytest.raises(TypeError, match=r"weight is torch.float32 and input torch.float64"):
        epitomic_conv2d(torch.randn(1, 3, 8, 8).double(), torch.randn(2, 3, 4, 4), kernel_size=3, pool_size=2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_accumulates_as_conv2d(dtype: torch.dtype, normalize: bool, autocast: bool) -> None:
    """Error against float64 no larger than that of conv2d with the very same filters."""
    torch.manual_seed(0)
    x, weight = torch.randn(2, 32, 12, 12).to(dtype), torch.randn(8, 32, 4, 4).to(dtype)
    options: dict[str, Any] = {"kernel_size": 3, "pool_size": 2, "normalize": normalize}
    exact = epitomic_conv2d(x.double(), weight.double(), **options, algorithm="reference")
    if autocast:
        with torch.autocast("cpu", dtype=dtype):
            y = epitomic_conv2d(x.float(), weight.float(), **options)
    else:
        y = epitomic_conv2d(x, weight, **options)
    assert y.dtype == dtype
    conv, conv_exact = (
        torch.nn.functional.conv2d(x.to(t), weight[:, :, :3, :3].to(t), stride=2).double()
        for t in (dtype, torch.float64)
    )
    share = (conv - conv_exact).abs().max() / conv_exact.abs().max()
    assert (y.double() - exact).abs().max() / exact.abs().max() <= 2 * share


def test_pool_size_none_is_one_maximum() -> None:
    x, weight = torch.randn(2, 3, 9, 9), torch.randn(4, 3, 7, 6)
    y = epitomic_conv2d(x, weight, kernel_size=3, stride=2)
    assert torch.equal(y, epitomic_conv2d(x, weight, kernel_size=3, pool_size=(5, 4), stride=2))
    assert epitomic_conv2d(x, weight, kernel_size=3).shape[-2:] == ((9 - 3) // 5 + 1, (9 - 3) // 4 + 1)


def test_more_than_256_positions() -> None:
    x, weight = torch.randn(1, 1, 4, 4), torch.randn(2, 1, 20, 20)
    y, p = epitomic_conv2d(x, weight, kernel_size=3, return_positions=True)
    expected, where = epitomic_conv2d(x, weight, kernel_size=3, algorithm="reference", return_positions=True)
    torch.testing.assert_close(y, expected)
    assert torch.equal(p, where)


def test_mean_of_the_epitome_does_not_matter_when_normalised() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 8, 9, 9) + 5, torch.randn(4, 8, 4, 4)
    options: dict[str, Any] = {"kernel_size": 3, "pool_size": 2, "normalize": True, "algorithm": "winograd"}
    y, shifted = (epitomic_conv2d(x, weight + shift, **options) for shift in (0, 100))
    torch.testing.assert_close(y, shifted, rtol=1e-3, atol=1e-3)


def test_auto() -> None:
    def choice(channels: int, kernel: int, pool: int, dtype: torch.dtype = torch.float32) -> str:
        geometry = Geometry.create(
            kernel_size=kernel, pool_size=pool, stride=None, padding=0, epitome_size=None, epitome_stride=1
        )
        weight = torch.empty(8, channels, *geometry.epitome, dtype=dtype)
        return choose_algorithm("auto", geometry, torch.empty(1, channels, 16, 16, dtype=dtype), weight)

    assert choice(64, 3, 2) == ("native" if NATIVE.library else "winograd")
    assert choice(64, 3, 2, torch.float64) == "winograd"
    assert choice(64, 3, 1) == "direct"  # a plain convolution: nothing to save
    assert choice(1, 5, 2) == ("native" if NATIVE.library else "direct")  # in torch calls, transforms are all of it
    assert choice(1, 5, 2, torch.float64) == "direct"
    assert choice(64, 7, 3) == "direct"  # nine points
    assert choice(64, 3, 2, torch.bfloat16) == "direct"


@settings(max_examples=settings().max_examples // 4)
@given(problem=problems(most_points=8))
def test_results_do_not_depend_on_the_workspace(problem: Problem) -> None:
    from epitomic.ops import winograd

    whole = problem.run("winograd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "WORKSPACE_FLOATS", 400)
        patch.setattr(winograd, "CHUNK_PATCHES", 3)
        pieces = problem.run("winograd")
    limit = 1e-3 if problem.x.dtype == torch.float32 else 1e-10
    for a, b in zip((whole[0], *whole[2]), (pieces[0], *pieces[2]), strict=True):
        torch.testing.assert_close(a, b, rtol=limit, atol=limit * max(1.0, a.abs().max().item() if a.numel() else 0))


def test_frozen_halves_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from epitomic.ops import winograd

    asked = []
    real = winograd.backward

    def backward(*args: Any) -> Any:
        asked.append(args[-1])
        return real(*args)

    monkeypatch.setattr(winograd, "backward", backward)
    x, weight = torch.randn(1, 32, 8, 8, requires_grad=True), torch.randn(4, 32, 4, 4, requires_grad=True)
    for tensors in ((x,), (weight,)):
        y = epitomic_conv2d(
            *(t if t is tensors[0] else t.detach() for t in (x, weight)),
            kernel_size=3,
            pool_size=2,
            algorithm="winograd",
        )
        torch.autograd.grad(y.sum(), tensors)
    assert [tuple(needs) for needs in asked] == [(True, False, False, False), (False, True, False, False)]
