"""The max-pooled networks against the same networks of torch's own layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from epitomic.layers import MaxPoolConv2d, NormConv2d, WinogradConv2d
from epitomic.models import create_model

NETWORKS: dict[str, dict[str, Any]] = {
    "maxpool_small": {"image_size": 17, "in_channels": 3},
    "maxpool_fast": {"image_size": 24, "width": 0.25},
    "maxpool": {"image_size": 96, "width": 0.1},
    "maxpool_norm": {"image_size": 96, "width": 0.1},
    "alexnet": {"image_size": 99, "width": 0.1},
}


def torch_layer(layer: nn.Module) -> nn.Module | None:
    """The layer of torch that computes the same, with the same parameters, or None if it is one already."""
    kind: Any = nn.Conv2d
    if isinstance(layer, MaxPoolConv2d):
        g = layer.geometry
        if layer.normalize:
            kind = NormConv2d
        conv = kind(
            *(layer.in_channels, layer.out_channels, g.kernel, g.stride, g.padding),
            groups=layer.groups,
            bias=layer.bias is not None,
        )
        conv.weight, conv.bias = layer.weight, layer.bias
        return nn.Sequential(conv, nn.MaxPool2d(g.pool, g.pool_stride, g.pool_padding, ceil_mode=g.ceil_mode))
    if isinstance(layer, WinogradConv2d):
        sizes: Any = (layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding)
        plain = kind(*sizes, 1, layer.groups, layer.bias is not None)
        plain.weight, plain.bias = layer.weight, layer.bias
        return plain
    return None


@pytest.mark.parametrize("name", NETWORKS)
def test_same_function_and_gradients(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, num_classes=5, **NETWORKS[name]).eval().double()
    size = NETWORKS[name]["image_size"]
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    dy = torch.randn(2, 5, dtype=torch.float64)
    ours = model(x)
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(ours, parameters, dy)
    replaced = 0
    for parent in list(model.modules()):
        for child_name, child in list(parent.named_children()):
            if (layer := torch_layer(child)) is not None:
                setattr(parent, child_name, layer)
                replaced += 1
    assert replaced
    theirs = model(x)
    torch.testing.assert_close(ours, theirs)
    for gradient, expected in zip(gradients, torch.autograd.grad(theirs, parameters, dy), strict=True):
        torch.testing.assert_close(gradient, expected)
