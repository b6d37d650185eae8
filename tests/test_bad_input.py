"""Wrong tensors: an error before any work, that names the argument, what it got and what would fit."""

from typing import Any

import pytest
import torch

from epitomic import epitomic_conv2d

X, WEIGHT, BIAS = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 4, 4), torch.randn(4)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"input": X[0, 0]}, ValueError, r"input must be \(N, C, H, W\) or \(C, H, W\), got shape \(8, 8\)"),
        ({"input": [1.0]}, TypeError, "input must be a tensor, got list"),
        ({"input": X.int()}, TypeError, "input must be of a floating-point dtype, got torch.int32"),
        ({"input": torch.randn(2, 5, 8, 8)}, ValueError, "input has 5 channels and the epitomes of weight have 3"),
        ({"input": torch.randn(2, 3, 2, 8)}, ValueError, "input height 2 .* is smaller than the filter's 3"),
        ({"weight": WEIGHT[0]}, ValueError, r"weight must hold the epitomes as \(K, C, V, V\), got shape \(3, 4, 4\)"),
        ({"weight": WEIGHT.double()}, TypeError, "weight is torch.float64 and input torch.float32"),
        ({"weight": WEIGHT.to("meta")}, ValueError, "weight is on meta and input on cpu"),
        ({"weight": WEIGHT[:0]}, ValueError, "at least one epitome"),
        ({"weight": torch.randn(4, 3, 2, 4)}, ValueError, "epitome height 2 is smaller than the filter's 3"),
        ({"bias": BIAS[:3]}, ValueError, "one value for each of the 4 output channels, got 3"),
        ({"bias": BIAS[None]}, ValueError, r"bias must have one dimension, got shape \(1, 4\)"),
        ({"bias": BIAS.double()}, TypeError, "bias is torch.float64"),
        ({"kernel_size": 5}, ValueError, "epitome height 4 is smaller than the filter's 5"),
        ({"pool_size": 3}, ValueError, "holds 2 filter positions .* must be at least 5"),
        ({"algorithm": "fastest"}, ValueError, "algorithm must be one of auto, reference, direct, winograd.*'fastest'"),
        ({"normalize": True, "eps": float("nan")}, ValueError, "eps, .* must not be negative, got nan"),
    ],
)
def test_error_names_the_argument(change: dict[str, Any], error: type[Exception], says: str) -> None:
    arguments: dict[str, Any] = {"input": X, "weight": WEIGHT, "bias": BIAS, "kernel_size": 3, "pool_size": 2} | change
    with pytest.raises(error, match=says):
        epitomic_conv2d(**arguments)


def test_algorithm_that_cannot_serve_says_why() -> None:
    with pytest.raises(ValueError, match=r"'winograd' cannot serve this call: .* at most 8 points .* \(9, 9\)"):
        epitomic_conv2d(X, torch.randn(4, 3, 9, 9), kernel_size=7, pool_size=3, algorithm="winograd")
    with pytest.raises(ValueError, match=r"needs float32 or float64, and the input is torch.bfloat16"):
        epitomic_conv2d(X.bfloat16(), WEIGHT.bfloat16(), kernel_size=3, algorithm="winograd")
