"""Torch's own checks of the operator: schema, fake kernels, strides and autograd."""

import pytest
import torch

from epitomic.ops.library import NATIVE
from epitomic.ops.matching import KERNELS, match_operator
from epitomic.ops.operands import Grid


@pytest.mark.parametrize("implementation", KERNELS)
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_opcheck(implementation: str, normalised: bool, memory_format: torch.memory_format) -> None:
    if implementation == "native" and NATIVE.library is None:
        pytest.skip(f"native kernel {NATIVE.reason}")
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 6).contiguous(memory_format=memory_format).requires_grad_()
    epitomes, bias = torch.randn(5, 3, 4, 4, requires_grad=True), torch.randn(5, requires_grad=True)
    gain = torch.rand(5, 4).add(0.5).requires_grad_() if normalised else None
    grid = Grid.of_patches((7, 6), (4, 4), (3, 3), (2, 2), (0, 0))
    torch.library.opcheck(match_operator, (x, epitomes, bias, gain, grid.numbers(), implementation))
