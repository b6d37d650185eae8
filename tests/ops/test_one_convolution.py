"""`one_convolution`: its chunks, more than 256 positions, half precision, and second derivatives."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings

from epitomic import epitomic_conv2d, max_pool_conv2d, winograd_conv2d
from epitomic.ops import one_convolution
from tests.problems import Problem, assert_same, problems


@settings(max_examples=settings().max_examples // 4)
@given(problem=problems())
def test_results_do_not_depend_on_the_workspace(problem: Problem) -> None:
    calls = []
    real = torch.nn.functional.conv2d

    def conv2d(x: Any, filters: Any, **options: Any) -> Any:
        calls.append(len(x) * filters.shape[0])
        return real(x, filters, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_convolution, "workspace_bytes", lambda _: 2000)
        patch.setattr(torch.nn.functional, "conv2d", conv2d)
        assert_same(problem, "one_convolution")
    responses = problem.dy.shape[2] * problem.dy.shape[3]
    positions = problem.geometry.pool[0] * problem.geometry.pool[1]
    smallest = positions * responses * problem.x.element_size()  # one output of one image
    assert max(calls) * responses * problem.x.element_size() <= max(2000, smallest)


def test_more_than_256_positions() -> None:
    x, weight = torch.randn(1, 1, 4, 4, requires_grad=True), torch.randn(2, 1, 20, 20)
    y, p = epitomic_conv2d(x, weight, kernel_size=3, algorithm="one_convolution", return_positions=True)
    expected, where = epitomic_conv2d(x, weight, kernel_size=3, algorithm="reference", return_positions=True)
    torch.testing.assert_close(y, expected)
    assert torch.equal(p, where)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(expected.sum(), x))


def test_bfloat16() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 8, 9, 9).bfloat16(), torch.randn(4, 8, 4, 4).bfloat16()
    y = epitomic_conv2d(x, weight, kernel_size=3, algorithm="one_convolution")
    assert y.dtype == torch.bfloat16
    expected = epitomic_conv2d(x.float(), weight.float(), kernel_size=3, algorithm="reference")
    torch.testing.assert_close(y.float(), expected, rtol=1e-2, atol=0.1)


def test_second_derivatives() -> None:
    torch.manual_seed(0)
    shapes = (1, 2, 5, 5), (2, 2, 3, 3), (2,)
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def layer(*tensors: torch.Tensor) -> torch.Tensor:
        return epitomic_conv2d(*tensors, kernel_size=2, algorithm="one_convolution")

    assert torch.autograd.gradgradcheck(layer, tensors)


def test_layers_of_one_convolution_are_left_alone() -> None:
    x, weight = torch.randn(1, 2, 8, 8), torch.randn(3, 2, 3, 3)
    for call in (
        lambda a: max_pool_conv2d(x, weight, pool_size=2, algorithm=a),
        lambda a: winograd_conv2d(x, weight, algorithm=a),
    ):
        assert torch.equal(call("one_convolution"), call("direct"))
