"""Shapes and strides on devices that are not here: fake CUDA tensors, and the meta device with gradients.

Torch without CUDA refuses a few calls even for fake CUDA tensors, and all of autograd. These calls are replaced here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("triton", reason="the package triton is not installed (extra gpu-dev, Linux x86-64)")

from epitomic import epitomic_conv2d, max_pool_conv2d
from epitomic.ops.triton import fused, operator, served
from epitomic.ops.triton.launches import Launch
from epitomic.ops.triton.served import TRITON

LAST = torch.channels_last
CALLS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "epitomes": (epitomic_conv2d, (2, 6, 11, 13), (5, 6, 4, 4), {"kernel_size": 3}),
    "normalised": (epitomic_conv2d, (2, 6, 11, 13), (5, 6, 4, 4), {"kernel_size": 3, "normalize": True}),
    "topographic": (epitomic_conv2d, (2, 6, 11, 13), (5, 6, 6, 6), {"kernel_size": 3, "pool_size": 2}),
    "pooling": (max_pool_conv2d, (2, 6, 11, 13), (8, 3, 3, 3), {"pool_size": 3, "pool_stride": 2, "groups": 2}),
}


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that would be launched. Nothing is."""
    names: list[str] = []

    def run(launch: Launch, *tensors: Tensor, **_: Any) -> None:
        names.append(launch.kernel)
        assert all(t.is_contiguous() for t in tensors)  # what the kernels read

    monkeypatch.setattr(fused, "run", run)
    return names


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """A CUDA device of fake tensors."""
    cuda = torch.device("cuda", 0)
    real_to, real_bmm = torch.Tensor.to, torch.bmm

    def contiguous(x: Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
        return x if x.is_contiguous(memory_format=memory_format) else x.clone(memory_format=memory_format)

    def to(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        moved = args and isinstance(args[0], torch.device) and args[0] != x.device
        return torch.empty_like(x, device=args[0]) if moved else real_to(x, *args, **kwargs)

    def bmm(a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
        assert a.device == b.device == cuda
        shaped = real_bmm(a.new_empty(a.shape, device="meta"), b.new_empty(b.shape, device="meta"))
        return torch.empty(shaped.shape, dtype=out_dtype or a.dtype, device=cuda)

    monkeypatch.setattr(torch.Tensor, "contiguous", contiguous)
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch, "bmm", bmm)
    served._why_not_gpu.cache_clear()
    with FakeTensorMode(), torch.no_grad():
        yield cuda
    served._why_not_gpu.cache_clear()


@pytest.mark.parametrize("algorithm", TRITON)
@pytest.mark.parametrize("name", [name for name in CALLS if name != "normalised"])  # it needs more replaced calls
@pytest.mark.parametrize("layout", [torch.contiguous_format, LAST])
def test_fake_cuda_tensors(
    name: str, algorithm: str, layout: torch.memory_format, gpu: torch.device, launched: list[str]
) -> None:
    function, shape, weights, options = CALLS[name]
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.empty(shape, device=gpu, dtype=dtype, memory_format=layout)
        weight = torch.empty(weights, device=gpu, dtype=dtype)
        cpu = function(torch.empty(shape, memory_format=layout), torch.empty(weights), **options, algorithm="direct")
        y, positions = function(x, weight, **options, algorithm=algorithm, return_positions=True)
        assert (y.shape, y.dtype, y.device) == (cpu.shape, dtype, gpu)
        assert (positions.shape, positions.dtype, positions.device) == (cpu.shape, torch.int64, gpu)
        if "groups" not in options:  # groups are put together by torch
            assert y.is_contiguous(memory_format=layout)
            assert positions.is_contiguous(memory_format=layout)
    assert launched


@pytest.mark.parametrize("algorithm", TRITON)
def test_the_operators_on_fake_cuda_tensors(algorithm: str, gpu: torch.device, launched: list[str]) -> None:
    """Forward and backward, as ``torch.compile`` calls them."""
    from epitomic.ops.operands import Grid

    x, weights = torch.empty(2, 11, 13, 6, device=gpu), torch.empty(5, 6, 4, 4, device=gpu)
    bias, gain = torch.empty(5, device=gpu), torch.empty(5, 4, device=gpu)
    grid = Grid.of_patches((11, 13), (4, 4), (3, 3), (2, 2), (0, 0)).numbers()
    y, winners = operator.match_operator(x, weights, bias, gain, grid, algorithm)
    assert (y.shape, winners.dtype) == (torch.Size((2, 5, 6, 5)), torch.uint8)
    needs = [True] * 4
    grads = operator.match_backward(y, y, winners, x, weights, bias, gain, grid, needs, algorithm)
    for grad, like in zip(grads, (x, weights, bias, gain), strict=True):
        assert (grad.shape, grad.stride(), grad.dtype, grad.device) == (like.shape, like.stride(), like.dtype, gpu)
    grads = operator.match_backward(y, y, winners, x, weights, bias, gain, grid, [False] * 4, algorithm)
    assert [g.numel() for g in grads] == [0] * 4


@pytest.mark.parametrize("algorithm", TRITON)
@pytest.mark.parametrize("name", CALLS)
def test_gradients_on_meta(name: str, algorithm: str, monkeypatch: pytest.MonkeyPatch, launched: list[str]) -> None:
    monkeypatch.setattr(served, "why_no_triton", lambda device: None)
    function, shape, weights, options = CALLS[name]
    x = torch.empty(shape, device="meta", dtype=torch.float16).to(memory_format=LAST).requires_grad_()
    weight = torch.empty(weights, device="meta", dtype=torch.float16, requires_grad=True)
    y = function(x, weight, **options, algorithm=algorithm)
    grads = torch.autograd.grad(y, (x, weight), torch.ones_like(y))
    for grad, like in zip(grads, (x, weight), strict=True):
        assert (grad.shape, grad.dtype, grad.device) == (like.shape, like.dtype, like.device)
    assert launched
