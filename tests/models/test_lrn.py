"""Local response normalisation against torch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from epitomic.models import lrn
from epitomic.models.lrn import LocalResponseNorm


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(2, 96, 9, 7), (1, 3, 5, 5), (3, 1, 2, 2), (0, 8, 4, 4)])
def test_equals_torch(shape: tuple[int, ...], memory_format: torch.memory_format) -> None:
    torch.manual_seed(0)
    x = (torch.randn(shape, dtype=torch.float64) * 30).to(memory_format=memory_format).requires_grad_()
    y = LocalResponseNorm()(x)
    expected = F.local_response_norm(x, 5, alpha=5 * 1e-4, beta=0.75, k=2.0)
    torch.testing.assert_close(y, expected)
    assert y.is_contiguous(memory_format=memory_format)
    dy = torch.randn_like(y)
    torch.testing.assert_close(torch.autograd.grad(y, x, dy)[0], torch.autograd.grad(expected, x, dy)[0])


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_few_images_at_a_time(memory_format: torch.memory_format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lrn, "NEAR", 2 * 6 * 3 * 4 + 1)  # two of these five images
    test_equals_torch((5, 6, 3, 4), memory_format)


def test_is_krizhevskys_formula() -> None:
    x = torch.rand(1, 4, 1, 1) * 50
    y = LocalResponseNorm(size=3, alpha=0.1, k=2.0)(x)
    for c in range(4):
        total = sum(float(x[0, j, 0, 0]) ** 2 for j in range(max(0, c - 1), min(3, c + 1) + 1))
        assert float(y[0, c, 0, 0]) == pytest.approx(float(x[0, c, 0, 0]) / (2 + 0.1 * total) ** 0.75, rel=1e-5)


def test_even_size_is_refused() -> None:
    with pytest.raises(ValueError, match="odd"):
        LocalResponseNorm(size=4)


def test_torch_func_and_forward_mode_work() -> None:
    layer, x = LocalResponseNorm(), torch.rand(2, 6, 3, 3, dtype=torch.float64) * 30
    (expected,) = torch.autograd.grad(layer(x.requires_grad_()).sum(), x)
    x = x.detach()
    torch.testing.assert_close(torch.func.grad(lambda x: layer(x).sum())(x), expected)
    slope = torch.func.jvp(lambda x: layer(x).sum(), (x,), (torch.ones_like(x),))[1]
    torch.testing.assert_close(slope, expected.sum())
