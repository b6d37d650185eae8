"""The kernel in torch calls: its workspace, and gradients that nobody asked for."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings

from epitomic import epitomic_conv2d
from epitomic.ops import winograd
from tests.problems import Problem, pool_problems, problems


@settings(max_examples=settings().max_examples // 4)
@given(problem=problems(max_points=8) | pool_problems(max_points=8))
def test_results_do_not_depend_on_the_workspace(problem: Problem) -> None:
    whole = problem.run("winograd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "WORKSPACE_FLOATS", 400)
        patch.setattr(winograd, "CHUNK_PATCHES", 3)
        pieces = problem.run("winograd")
    limit = 1e-3 if problem.x.dtype == torch.float32 else 1e-10
    for a, b in zip((whole[0], *whole[2]), (pieces[0], *pieces[2]), strict=True):
        torch.testing.assert_close(a, b, rtol=limit, atol=limit * max(1.0, a.abs().max().item() if a.numel() else 0))


def test_frozen_halves_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
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
