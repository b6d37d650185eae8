"""convert_: epitomic layers that start as the convolution + max-pooling they replace."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from epitomic import EpitomicConv2d, convert_
from tests.surgery.architectures import ARCHITECTURES, VGG
from tests.surgery.test_fusion import made


@pytest.mark.parametrize("name", [n for n in ARCHITECTURES if n not in ("resnet", "squeezenet")])
def test_the_same_function_to_start_with(name: str) -> None:
    model, x = made(ARCHITECTURES[name])
    model.eval()
    expected = model(x)
    assert convert_(model, filter_fn=lambda *_: True) == list(ARCHITECTURES[name].fused)
    torch.testing.assert_close(model(x), expected, rtol=1e-9, atol=1e-9)
    model.train()
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_borders_of_padded_pooling_differ_and_are_named() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(16, 4, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)).double()
    x = torch.randn(1, 16, 16, 16, dtype=torch.float64)
    expected = model(x)
    assert convert_(model, explain=True) == [
        ("0", True, "is now an epitomic layer (borders differ: the pooling is padded)")
    ]
    found = model(x)
    assert found.shape == expected.shape
    torch.testing.assert_close(found[..., 1:-1, 1:-1], expected[..., 1:-1, 1:-1])


def test_what_is_left_alone_by_default() -> None:
    lines = {name: reason for name, _, reason in convert_(VGG(), explain=True)}
    assert "min_channels=16" in lines["features.0"]
    assert "no max-pooling" in lines["features.6"] or "follows it" in lines["features.6"]
    large = nn.Sequential(nn.Conv2d(16, 4, 7), nn.MaxPool2d(3))
    with pytest.warns(UserWarning, match="nothing was converted"):
        assert "points per axis" in convert_(large, explain=True)[0][2]
    assert convert_(large, filter_fn=lambda *_: True) == ["0"]


def test_ceil_mode_is_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(16, 4, 3), nn.MaxPool2d(2, ceil_mode=True))
    with pytest.warns(UserWarning, match="nothing was converted"):
        assert "ceil_mode" in convert_(model, explain=True)[0][2]


def test_the_zeros_can_learn() -> None:
    conv, pool = nn.Conv2d(16, 8, 3), nn.MaxPool2d(2)
    layer = EpitomicConv2d.from_conv(conv, pool)
    assert (layer.kernel_size, layer.pool_size, layer.weight.shape[2:]) == ((4, 4), (2, 2), (5, 5))
    assert torch.equal(layer.weight[:, :, 1:4, 1:4], conv.weight)
    assert layer.weight.count_nonzero() == conv.weight.numel()
    layer(torch.randn(4, 16, 12, 12)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad[:, :, 0].count_nonzero() > 0
