"""Every algorithm against `reference` on random layers, the rules that hold for all of them, and wrong arguments."""

import os
import warnings
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from epitomic import epitomic_conv2d, max_pool_conv2d, winograd_conv2d
from epitomic.geometry import Geometry
from epitomic.ops.choice import ALGORITHMS
from epitomic.ops.library import NATIVE
from epitomic.ops.transforms import MAX_POINTS
from epitomic.ops.triton.served import TRITON
from tests.problems import Problem, assert_same, plain_problems, pool_problems, problems

# Those that run on every CPU. tests/ops/triton has the others.
FAST = [a for a in ALGORITHMS if a not in ("auto", "reference", *TRITON, *([] if NATIVE.library else ["native"]))]


# 3 x 3 filters and 2 x 2 pooling: the function, and the size of its weights.
LAYERS = {
    "epitomic": (partial(epitomic_conv2d, kernel_size=3, pool_size=2), 4),
    "max_pool": (partial(max_pool_conv2d, pool_size=2), 3),
}


EXAMPLES = int(os.environ.get("EPITOMIC_EXAMPLES", "60"))


@given(problem=problems())
def test_same_as_reference(problem: Problem) -> None:
    check_against_reference(problem)


@settings(max_examples=EXAMPLES)
@given(problem=pool_problems())
def test_max_pool_same_as_reference(problem: Problem) -> None:
    check_against_reference(problem)


@settings(max_examples=EXAMPLES)
@given(problem=plain_problems())
def test_plain_same_as_conv2d(problem: Problem) -> None:
    check_against_reference(problem)


def check_against_reference(problem: Problem) -> None:
    """Runs all algorithms on a problem. Those that cannot serve it must say why."""
    served = ["auto", "direct", "one_convolution"]
    for algorithm in (a for a in FAST if a not in served):
        reason = "points" if max(problem.geometry.points) > MAX_POINTS else None
        if algorithm == "native" and problem.x.dtype != torch.float32:
            reason = reason or "float32"
        if reason is None:
            served.append(algorithm)
            continue
        with pytest.raises(ValueError, match=f"algorithm='{algorithm}' cannot serve this call: .* {reason}"):
            problem.run(algorithm)
    assert_same(problem, *served)


@pytest.mark.parametrize("algorithm", ["reference", "direct", "one_convolution", "winograd"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("kernel", "pool", "stride", "epitome", "step"),
    [
        (3, 2, 2, 4, 1),  # mini-epitome
        ((2, 3), (3, 1), (1, 2), (4, 3), 1),  # height and width differ
        (4, 2, 2, 6, 2),  # epitome stride that becomes channels of the image
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


@pytest.mark.parametrize("algorithm", ["reference", "direct", "winograd"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"pool_size": 2},
        {"pool_size": 3, "pool_stride": 2, "pool_padding": 1, "padding": (0, 2)},  # windows overlap and hang over
        {"pool_size": (1, 2), "stride": 2, "padding": 1, "ceil_mode": True},  # a stride that does not divide the filter
        {"pool_size": 2, "padding": 1, "groups": 2},
    ],
)
def test_max_pool_gradcheck(algorithm: str, normalize: bool, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    shapes = (1, 2, 5, 6), (2, 2 // options.get("groups", 1), 3, 3), (2,)
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    call = partial(max_pool_conv2d, **options, normalize=normalize, algorithm=algorithm)
    assert torch.autograd.gradcheck(call, tensors)


def test_plain_gradcheck() -> None:
    torch.manual_seed(0)
    shapes = (1, 2, 4, 5), (2, 1, 3, 2), (2,)
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(partial(winograd_conv2d, padding=1, groups=2, algorithm="winograd"), tensors)


@pytest.mark.parametrize("algorithm", [a for a in FAST if a not in ("direct", "one_convolution")])
@pytest.mark.parametrize(
    ("channels", "filters", "size", "kernel"), [(192, 256, 17, 3), (16, 64, 32, 3), (32, 32, 12, 5)]
)
def test_plain_error_is_at_most_ten_times_that_of_conv2d(
    algorithm: str, channels: int, filters: int, size: int, kernel: int
) -> None:
    """The root-mean-square error against float64, of the output and of both gradients."""
    torch.manual_seed(0)
    x = torch.randn(2, channels, size, size).relu()  # as in a network: the output of a ReLU
    weight = torch.randn(filters, channels, kernel, kernel) * (channels * kernel**2) ** -0.5
    dy = torch.randn(2, filters, size, size)

    def run(algorithm: str, dtype: torch.dtype) -> list[Tensor]:
        leaves = [t.to(dtype).requires_grad_() for t in (x, weight)]
        y = winograd_conv2d(leaves[0], leaves[1], padding=kernel // 2, algorithm=algorithm)
        return [y, *torch.autograd.grad(y, leaves, dy.to(dtype))]

    exact = run("direct", torch.float64)
    for ours, torchs, want in zip(run(algorithm, x.dtype), run("direct", x.dtype), exact, strict=True):
        assert (ours - want).square().mean().sqrt() <= 10 * (torchs - want).square().mean().sqrt()


@pytest.mark.parametrize("algorithm", ["auto", *FAST])
@pytest.mark.parametrize("padding", ["same", "valid", (2, 1)])
@pytest.mark.parametrize("kernel", [(3, 3), (2, 4)])
def test_plain_takes_the_paddings_of_conv2d(algorithm: str, padding: Any, kernel: tuple[int, int]) -> None:
    x, weight = torch.randn(2, 16, 9, 8), torch.randn(16, 16, *kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the copy that "same" makes of even filters
        expected = torch.nn.functional.conv2d(x, weight, padding=padding)
    y = winograd_conv2d(x, weight, padding=padding, algorithm=algorithm)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)


def test_plain_with_stride_or_dilation_is_conv2d_or_says_why() -> None:
    x, weight = torch.randn(2, 32, 12, 12), torch.randn(32, 32, 3, 3)
    cases: list[dict[str, Any]] = [{"stride": 2}, {"dilation": (1, 2), "padding": "same"}]
    for options in cases:
        expected = torch.nn.functional.conv2d(x, weight, **options)
        assert torch.equal(winograd_conv2d(x, weight, **options), expected)
        with pytest.raises(ValueError, match=r"'winograd' cannot serve this call: it needs stride=1 and dilation=1"):
            winograd_conv2d(x, weight, **options, algorithm="winograd")


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"padding": "full"}, ValueError, "padding must be an int, a pair of ints, 'same' or 'valid', got 'full'"),
        ({"padding": "same", "stride": 2}, ValueError, r"padding='same' needs a stride of 1, got stride=\(2, 2\)"),
        ({"dilation": 0}, ValueError, "dilation must be at least 1, got 0"),
        ({"groups": 2}, ValueError, "input has 3 channels and the filters of weight have 3 in each of 2 groups"),
        ({"algorithm": "reference"}, ValueError, "algorithm='reference' is that of pooled layers; use 'direct'"),
        ({"input": torch.randn(2, 3, 2, 8)}, ValueError, "input height 2 .* is smaller than the filter's 3"),
    ],
)
def test_error_of_plain_names_the_argument(change: dict[str, Any], error: type[Exception], says: str) -> None:
    arguments: dict[str, Any] = {"input": torch.randn(2, 3, 8, 8), "weight": torch.randn(4, 3, 3, 3)} | change
    with pytest.raises(error, match=says):
        winograd_conv2d(**arguments)


@pytest.mark.parametrize("algorithm", ["direct", "one_convolution", "winograd", "auto"])
def test_one_channel_of_a_channels_last_image(algorithm: str) -> None:
    """torch's own convolution gives wrong results for it, and its backward pass may crash."""
    image = torch.randn(2, 2, 5, 4).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(2, 1, 4, 6, requires_grad=True)
    sizes: dict[str, Any] = {"kernel_size": 4, "pool_size": (1, 3), "stride": (1, 3)}
    for x in (image[:, :1], image[:, :1].contiguous(memory_format=torch.channels_last)):
        expected = epitomic_conv2d(x.contiguous().double(), weight.double(), algorithm="reference", **sizes)
        y = epitomic_conv2d(x, weight, algorithm=algorithm, **sizes)
        torch.testing.assert_close(y.double(), expected, rtol=0, atol=1e-4)
        got, want = (torch.autograd.grad(out.sum(), weight)[0] for out in (y, expected))
        torch.testing.assert_close(got, want, rtol=0, atol=1e-4)


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
def test_max_pool_ties_go_to_the_lowest_position_inside(algorithm: str) -> None:
    """Every response is zero; windows that hang over the border have no position 0."""
    x, weight = torch.zeros(1, 2, 8, 8), torch.randn(3, 2, 3, 3)
    options: dict[str, Any] = {"pool_size": 2, "pool_padding": 1, "algorithm": algorithm}
    y, positions = max_pool_conv2d(x, weight, **options, return_positions=True)
    assert not y.any()
    expected = torch.tensor([[3, 2, 2, 2], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])
    assert torch.equal(positions, expected.expand_as(positions))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("algorithm", ["reference", *FAST])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_in_nan_out(layer: str, algorithm: str, normalize: bool, value: float) -> None:
    torch.manual_seed(0)
    call, size = LAYERS[layer]
    x, weight = torch.randn(1, 2, 8, 8), torch.randn(3, 2, size, size)
    x[0, 1, 2, 2] = value  # outputs (0, 0) to (1, 1) see it
    y, positions = call(x, weight, normalize=normalize, algorithm=algorithm, return_positions=True)
    if layer == "max_pool" and value == float("inf"):  # the larger of inf and -inf, or NaN
        assert y[:, :, 2:].isfinite().all()
        return
    touched = torch.zeros(3, 3, dtype=torch.bool)
    touched[:2, :2] = True
    assert not y[:, :, touched].isfinite().any()
    assert y[:, :, ~touched].isfinite().all()
    if value != value:
        assert y[:, :, touched].isnan().all()
    assert positions.min() >= 0
    assert positions.max() < 4


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("algorithm", ["auto", *FAST])
def test_memory_format_is_kept(layer: str, algorithm: str) -> None:
    call, size = LAYERS[layer]
    weight = torch.randn(8, 6, size, size)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 6, 9, 9).contiguous(memory_format=memory_format).requires_grad_()
        y = call(x, weight, algorithm=algorithm)
        assert y.is_contiguous(memory_format=memory_format)
        assert torch.autograd.grad(y.sum(), x)[0].is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("algorithm", ["auto", *FAST])
def test_one_image_without_a_batch(layer: str, algorithm: str) -> None:
    call, size = LAYERS[layer]
    x, weight = torch.randn(3, 10, 12), torch.randn(4, 3, size, size)
    y, p = call(x, weight, algorithm=algorithm, return_positions=True)
    batch_y, batch_p = call(x[None], weight, algorithm=algorithm, return_positions=True)
    assert torch.equal(y, batch_y[0])
    assert torch.equal(p, batch_p[0])


def test_autocast_leaves_double_alone_and_says_so() -> None:
    with torch.autocast("cpu"), pytest.raises(TypeError, match=r"weight is torch.float32 and input torch.float64"):
        epitomic_conv2d(torch.randn(1, 3, 8, 8).double(), torch.randn(2, 3, 4, 4), kernel_size=3, pool_size=2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_half_precision_accumulates_as_conv2d(dtype: torch.dtype, normalize: bool, autocast: bool, layer: str) -> None:
    """The error against float64 is at most twice that of conv2d with the same filters."""
    torch.manual_seed(0)
    call, size = LAYERS[layer]
    x, weight = torch.randn(2, 32, 12, 12).to(dtype), torch.randn(8, 32, size, size).to(dtype)
    exact = call(x.double(), weight.double(), normalize=normalize, algorithm="reference")
    if autocast:
        with torch.autocast("cpu", dtype=dtype):
            y = call(x.float(), weight.float(), normalize=normalize)
    else:
        y = call(x, weight, normalize=normalize)
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


X, WEIGHT, BIAS = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 4, 4), torch.randn(4)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"input": X[0, 0]}, ValueError, r"input must be \(N, C, H, W\) or \(C, H, W\), got shape \(8, 8\)"),
        ({"input": [1.0]}, TypeError, "input must be a tensor, got list"),
        ({"input": X.int()}, TypeError, "input must be of a floating-point dtype, got torch.int32"),
        ({"input": torch.randn(2, 5, 8, 8)}, ValueError, "input has 5 channels and the epitomes of weight have 3"),
        ({"input": torch.randn(2, 3, 2, 8)}, ValueError, "input height 2 .* is smaller than the filter's 3"),
        ({"weight": WEIGHT[0]}, ValueError, r"weight must hold the epitomes as \(K, .*, got shape \(3, 4, 4\)"),
        ({"weight": WEIGHT.double()}, TypeError, "weight is torch.float64 and input torch.float32"),
        ({"weight": WEIGHT.to("meta")}, ValueError, "weight is on meta and input on cpu"),
        ({"weight": WEIGHT[:0]}, ValueError, "at least one epitome"),
        ({"weight": torch.randn(4, 3, 2, 4)}, ValueError, "epitome height 2 is smaller than the filter's 3"),
        ({"bias": BIAS[:3]}, ValueError, "one value for each of the 4 output channels, got 3"),
        ({"bias": BIAS[None]}, ValueError, r"bias must have one dimension, got shape \(1, 4\)"),
        ({"bias": BIAS.double()}, TypeError, "bias is torch.float64"),
        ({"kernel_size": 5}, ValueError, "epitome height 4 is smaller than the filter's 5"),
        ({"pool_size": 3}, ValueError, "holds 2 filter positions .* must be at least 5"),
        ({"algorithm": "fastest"}, ValueError, "algorithm must be one of auto, .* one_convolution.*'fastest'"),
        ({"normalize": True, "eps": float("nan")}, ValueError, "eps, .* must not be negative, got nan"),
    ],
)
def test_error_names_the_argument(change: dict[str, Any], error: type[Exception], says: str) -> None:
    arguments: dict[str, Any] = {"input": X, "weight": WEIGHT, "bias": BIAS, "kernel_size": 3, "pool_size": 2} | change
    with pytest.raises(error, match=says):
        epitomic_conv2d(**arguments)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"weight": WEIGHT[0]}, ValueError, r"weight must hold the filters as \(K, .*, got shape \(3, 4, 4\)"),
        ({"weight": WEIGHT[:, :2]}, ValueError, "input has 3 channels and the filters of weight have 2"),
        ({"weight": WEIGHT[:, :2], "groups": 2}, ValueError, "the filters of weight have 2 in each of 2 groups"),
        ({"groups": 3}, ValueError, "groups must divide the 4 filters of weight, got 3"),
        ({"groups": 0}, ValueError, "groups must divide the 4 filters of weight, got 0"),
        ({"bias": BIAS[:3]}, ValueError, "one value for each of the 4 output channels, got 3"),
        ({"input": torch.randn(2, 3, 3, 8)}, ValueError, "input height 3 .* is smaller than the filter's 4"),
        ({"pool_size": 6}, ValueError, r"the convolution gives height 5, too small for pool_size=\(6, 6\)"),
        ({"pool_padding": 2}, ValueError, r"pool_padding must be at most half of pool_size=\(2, 2\), got 2"),
        ({"algorithm": "fastest"}, ValueError, "algorithm must be one of auto, .* one_convolution.*'fastest'"),
        ({"normalize": True, "eps": -1.0}, ValueError, "eps, .* must not be negative, got -1"),
    ],
)
def test_error_of_max_pool_names_the_argument(change: dict[str, Any], error: type[Exception], says: str) -> None:
    arguments: dict[str, Any] = {"input": X, "weight": WEIGHT, "bias": BIAS, "pool_size": 2} | change
    with pytest.raises(error, match=says):
        max_pool_conv2d(**arguments)
