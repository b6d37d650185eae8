"""The layers over sequences, against torch's pair and against the layers over images."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from epitomic import EpitomicConv1d, EpitomicConv2d, MaxPoolConv1d, epitomic_conv1d, max_pool_conv1d

ALGORITHMS = ("reference", "direct", "winograd", "native")


def gradients(layer: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    y = layer(x)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y)
    return [y, *torch.autograd.grad(y, [x, *layer.parameters()], dy)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "sizes",
    [
        {"kernel_size": 5, "pool_size": 2},
        {"kernel_size": 4, "pool_size": 3, "pool_stride": 2, "pool_padding": 1, "padding": 2},
        {"kernel_size": 3, "pool_size": 4, "groups": 2, "ceil_mode": True},
        {"kernel_size": 6, "pool_size": 2, "stride": 2},
    ],
)
def test_max_pooled_layer_is_the_pair(sizes: dict[str, Any], algorithm: str) -> None:
    torch.manual_seed(0)
    layer = MaxPoolConv1d(4, 6, **sizes, algorithm=algorithm)
    conv: Any = nn.Conv1d(
        4, 6, sizes["kernel_size"], sizes.get("stride", 1), sizes.get("padding", 0), groups=sizes.get("groups", 1)
    )
    conv.load_state_dict(layer.state_dict())
    pool = nn.MaxPool1d(
        sizes["pool_size"],
        sizes.get("pool_stride"),
        sizes.get("pool_padding", 0),
        ceil_mode=sizes.get("ceil_mode", False),
    )
    x = torch.randn(3, 4, 37)
    for ours, theirs in zip(gradients(layer, x), gradients(nn.Sequential(conv, pool), x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(layer(x[0]), layer(x)[0], rtol=1e-4, atol=1e-5)  # without a batch


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("normalize", [False, True])
def test_epitomic_layer_is_that_of_images_of_one_row(normalize: bool, algorithm: str) -> None:
    torch.manual_seed(0)
    sizes = {"kernel_size": 5, "pool_size": 3, "stride": 2, "padding": 1, "epitome_size": 10, "epitome_stride": 1}
    layer = EpitomicConv1d(4, 8, **sizes, groups=2, normalize=normalize, algorithm=algorithm)  # type: ignore[arg-type]
    rows = {name: (0 if name == "padding" else 1, size) for name, size in sizes.items()}
    images = EpitomicConv2d(4, 8, **rows, groups=2, normalize=normalize, algorithm="reference")  # type: ignore[arg-type]
    images.load_state_dict({n: p.unsqueeze(-2) if n == "weight" else p for n, p in layer.state_dict().items()})
    x = torch.randn(3, 4, 29)
    y, positions = layer.match(x)
    expected, where = images.match(x.unsqueeze(-2))
    torch.testing.assert_close(y, expected.squeeze(-2), rtol=1e-4, atol=1e-4)
    assert (positions == where.squeeze(-2)).float().mean() > 0.99
    assert layer.filters().shape == (8, 3, 2, 5)


def test_epitomic_layer_starts_as_a_pair() -> None:
    torch.manual_seed(0)
    conv, pool = nn.Conv1d(4, 6, 5, stride=2, padding=1, groups=2), nn.MaxPool1d(3, 2)
    layer, x = EpitomicConv1d.from_conv(conv, pool), torch.randn(2, 4, 41)
    torch.testing.assert_close(layer(x), pool(conv(x)), rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match=r"takes nn.Conv1d and nn.MaxPool1d, got Conv2d"):
        EpitomicConv1d.from_conv(nn.Conv2d(3, 8, 3), pool)


def test_the_layers_call_the_functions() -> None:
    torch.manual_seed(0)
    x, epitomic, pooled = torch.randn(2, 3, 30), EpitomicConv1d(3, 8, 4), MaxPoolConv1d(3, 8, 4, padding="same")
    y, positions = epitomic_conv1d(x, epitomic.weight, epitomic.bias, kernel_size=4, pool_size=2, return_positions=True)
    assert torch.equal(y, epitomic(x))
    assert positions.dtype == torch.int64
    assert positions.shape == y.shape
    z = max_pool_conv1d(x, pooled.weight, pooled.bias, pool_size=2, padding="same")
    assert torch.equal(z, pooled(x))
    assert z.shape == (2, 8, 15)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: EpitomicConv1d(3, 8, (3, 3)), TypeError, r"kernel_size must be an int, got \(3, 3\)"),
        (lambda: MaxPoolConv1d(3, 8, 3, padding=-1), ValueError, "padding must be at least 0"),
        (
            lambda: EpitomicConv1d(3, 8, 3)(torch.randn(2, 3, 8, 8)),
            ValueError,
            r"input must be \(N, C, L\) or \(C, L\)",
        ),
        (
            lambda: max_pool_conv1d(torch.randn(2, 3, 9), torch.randn(4, 3), pool_size=2),
            ValueError,
            r"weight must be \(K",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_repr_shows_one_axis() -> None:
    assert repr(EpitomicConv1d(3, 8, 5)) == "EpitomicConv1d(3, 8, kernel_size=(5,), pool_size=(2,), stride=(2,))"
