"""Each reduction leaves the responses of the reference as they are."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from torch import Tensor

from epitomic import epitomic_conv2d
from epitomic.geometry import Geometry, Pair
from epitomic.ops.filters import gather_filters
from epitomic.ops.reductions import contrast_gain, mini_epitomes, pixels_to_channels, stride_to_channels
from epitomic.ops.reference import epitomic_conv2d_reference
from tests.problems import Problem, problems

FEWER = settings(max_examples=settings().max_examples // 4)


def respond(x: Tensor, minis: Tensor, kernel: Pair, stride: Pair) -> Tensor:
    """The reference on mini-epitomes with stride 1 inside the epitome."""
    geometry = Geometry.create(
        kernel_size=kernel,
        pool_size=None,
        stride=stride,
        padding=0,
        epitome_size=[int(v) for v in minis.shape[2:]],
        epitome_stride=1,
    )
    return epitomic_conv2d_reference(x, minis, None, geometry, normalize=False, eps=0)[0]


@FEWER
@given(problem=problems())
def test_responses_stay(problem: Problem) -> None:
    geometry, weight = problem.geometry, problem.weight.double()
    x = problem.x.double()[:, : weight.shape[1]]  # the channels of one group
    expected, _ = epitomic_conv2d_reference(x, weight, None, geometry, normalize=False, eps=0)
    (ph, pw) = geometry.padding
    x, minis, kernel, stride = stride_to_channels(
        F.pad(x, (pw, pw, ph, ph)), mini_epitomes(weight, geometry), geometry, centred=False
    )
    torch.testing.assert_close(respond(x, minis, kernel, stride), expected)
    pixels, windows = pixels_to_channels(x, minis, kernel, stride)
    torch.testing.assert_close(respond(pixels, windows, (1, 1), (1, 1)), expected)


@FEWER
@given(problem=problems())
def test_gain_is_one_over_the_contrast(problem: Problem) -> None:
    geometry, weight = problem.geometry, problem.weight.double()
    filters = gather_filters(weight, geometry)  # (K, D*D, C, W, W)
    centred = filters - filters.mean((2, 3, 4), keepdim=True)
    gain = contrast_gain(mini_epitomes(weight, geometry), geometry, eps=0.01)
    torch.testing.assert_close(gain, (centred.square().sum((2, 3, 4)) + 0.01).rsqrt())


def test_mean_of_the_epitome_does_not_matter_when_normalised() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 8, 9, 9) + 5, torch.randn(4, 8, 4, 4)
    options: dict[str, Any] = {"kernel_size": 3, "pool_size": 2, "normalize": True, "algorithm": "winograd"}
    y, shifted = (epitomic_conv2d(x, weight + shift, **options) for shift in (0, 100))
    torch.testing.assert_close(y, shifted, rtol=1e-3, atol=1e-3)
