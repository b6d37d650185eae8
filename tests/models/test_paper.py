"""The paper's networks against its Tables 1 to 3. Every number here is worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from epitomic.layers import EpitomicConv2d, MaxPoolConv2d, NormConv2d, WinogradConv2d
from epitomic.models import count, create_model
from epitomic.models.lrn import LocalResponseNorm
from epitomic.support.errors import UserError

# Output of each layer's last part, from a 220 x 220 image: (channels, height and width).
SHAPES = {
    "maxpool": [  # Caffe's pooling rounds up
        (96, 36),  # (220 - 8) / 2 + 1 = 107; / 3 = 36
        (192, 16),  # 36 - 6 + 1 = 31; / 2 = 16
        (256, 16),
        (384, 16),
        (512, 16),
        (512, 5),  # 16 - 3 + 1 = 14; / 3 = 5
    ],
    "epitomic": [
        (96, 54),  # (220 - 8) / 4 + 1 = 54
        (192, 17),  # (54 - 6) / 3 + 1 = 17
        (256, 17),
        (384, 17),
        (512, 17),
        (512, 5),  # (17 - 3) / 3 + 1 = 5
    ],
    "topographic": [(4 * 25, 54), (4 * 49, 17), (256, 17), (384, 17), (512, 17), (8 * 64, 5)],
}
# Weights' shapes: epitomes or filters, channels, size of each.
WEIGHTS = {
    "maxpool": [(96, 3, 8), (192, 96, 6), (256, 192, 3), (384, 256, 3), (512, 384, 3), (512, 512, 3)],
    "epitomic": [(96, 3, 12), (192, 96, 8), (256, 192, 3), (384, 256, 3), (512, 384, 3), (512, 512, 5)],
    "topographic": [(4, 3, 36), (4, 100, 26), (256, 196, 3), (384, 256, 3), (512, 384, 3), (8, 512, 26)],
}
FILTERS = [8, 6, 3, 3, 3, 3]
INPUT_STRIDES = {"maxpool": [2, 1, 1, 1, 1, 1], "epitomic": [4, 3, 1, 1, 1, 3], "topographic": [4, 3, 1, 1, 1, 3]}
POOLS = {"maxpool": [3, 2, 0, 0, 0, 3], "epitomic": [3, 3, 0, 0, 0, 3], "topographic": [3, 3, 0, 0, 0, 3]}
FULL = 512 * 5 * 5 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000  # layers 7, 8 and out
PARAMETERS = {
    "maxpool": FULL
    + (96 * 3 * 64 + 96)
    + (192 * 96 * 36 + 192)
    + (256 * 192 * 9 + 256)
    + (384 * 256 * 9 + 384)
    + (512 * 384 * 9 + 512)
    + (512 * 512 * 9 + 512),
    "epitomic": FULL
    + (96 * 3 * 144 + 96)
    + (192 * 96 * 64 + 192)
    + (256 * 192 * 9 + 256)
    + (384 * 256 * 9 + 384)
    + (512 * 384 * 9 + 512)
    + (512 * 512 * 25 + 512),
    "topographic": FULL
    + (4 * 3 * 36 * 36 + 100)
    + (4 * 100 * 26 * 26 + 196)
    + (256 * 196 * 9 + 256)
    + (384 * 256 * 9 + 384)
    + (512 * 384 * 9 + 512)
    + (8 * 512 * 26 * 26 + 512),
}


SMALLEST = {  # image that leaves one pixel after the last convolutional layer, from there backwards
    "maxpool": 62,  # 1 + 2 = 3; (3 - 1) * 2 + 1 + 5 = 10; (10 - 1) * 3 + 1 = 28; (28 - 1) * 2 + 8 = 62
    "epitomic": 52,  # 1 + 2 = 3; (3 - 1) * 3 + 6 = 12; (12 - 1) * 4 + 8 = 52
    "topographic": 52,
    "alexnet": 67,  # 3; (3 - 1) * 2 + 3 = 7; (7 - 1) * 2 + 3 = 15; (15 - 1) * 4 + 11 = 67
}


def build(name: str, **arguments: object) -> nn.Module:
    with torch.device("meta"):  # 80 million parameters of which only the shapes matter
        return create_model(name, **arguments)  # type: ignore[arg-type]


def get(model: nn.Module, name: str) -> Any:
    return model.get_submodule(name)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("table", ["maxpool", "epitomic", "topographic"])
def test_tables(table: str, norm: bool) -> None:
    model = build(table + ("_norm" if norm else ""))
    total = count(model, (3, 220, 220))
    outputs = {layer.name: layer.output for layer in total.layers}
    for i in range(6):
        block = f"features.layer{i + 1}"
        conv = get(model, f"{block}.conv")
        last = [name for name in outputs if name.startswith(block)][-1]
        channels, size = SHAPES[table][i]
        assert outputs[last] == (channels, size, size)
        k, c, v = WEIGHTS[table][i]
        assert conv.weight.shape == (k, c, v, v)
        assert conv.bias.shape == (channels,)
        has_max = POOLS[table][i] > 0
        if has_max and table != "maxpool":
            assert isinstance(conv, EpitomicConv2d)
            g = conv.geometry
            assert (g.kernel[0], g.stride[0], g.pool[0]) == (FILTERS[i], INPUT_STRIDES[table][i], POOLS[table][i])
            assert g.epitome_stride[0] == (2 if i == 0 else 1)
            assert conv.normalize is norm
        elif i == 5:  # no LRN stands between convolution and maximum
            assert isinstance(conv, MaxPoolConv2d)
            p = conv.geometry
            assert (p.kernel[0], p.stride[0], p.pool[0]) == (FILTERS[i], INPUT_STRIDES[table][i], POOLS[table][i])
            assert p.ceil_mode
            assert conv.normalize is norm
        else:
            assert isinstance(conv, nn.Conv2d)
            assert isinstance(conv, WinogradConv2d) is not has_max
            assert (conv.kernel_size[0], conv.stride[0]) == (FILTERS[i], INPUT_STRIDES[table][i])
            assert isinstance(conv, NormConv2d) is (norm and has_max)
            assert conv.padding == ((1, 1) if i in (2, 3, 4) else (0, 0))
            if has_max:
                pool = get(model, f"{block}.pool")
                assert (pool.kernel_size, pool.stride, pool.ceil_mode) == (POOLS[table][i], POOLS[table][i], True)
        parts = [type(m) for m in get(model, block).children()]
        assert parts.count(nn.ReLU) == 1
        assert parts.count(LocalResponseNorm) == (1 if i < 2 else 0)
        if LocalResponseNorm in parts:  # ReLU, then LRN, then the maximum
            assert parts[1:3] == [nn.ReLU, LocalResponseNorm]
    assert [outputs[name] for name in ("layer7.linear", "layer8.linear", "out")] == [(4096,), (4096,), (1000,)]
    assert get(model, "layer7.dropout").p == get(model, "layer8.dropout").p == 0.5
    assert total.parameters == PARAMETERS[table]


def test_multiply_adds_of_the_epitomic_network() -> None:
    expected = (
        96 * 54**2 * 9 * 3 * 64
        + 192 * 17**2 * 9 * 96 * 36
        + 17**2 * 9 * (256 * 192 + 384 * 256 + 512 * 384)
        + 512 * 25 * 9 * 512 * 9
        + 512 * 25 * 4096
        + 4096**2
        + 4096 * 1000
    )
    assert count(build("epitomic"), (3, 220, 220)).multiply_adds == expected


def test_multiply_adds_of_the_max_pooled_network() -> None:
    expected = (
        96 * 107**2 * 3 * 64
        + 192 * 31**2 * 96 * 36
        + 16**2 * 9 * (256 * 192 + 384 * 256 + 512 * 384)
        + 512 * 14**2 * 512 * 9
        + 512 * 25 * 4096
        + 4096**2
        + 4096 * 1000
    )
    assert count(build("maxpool"), (3, 220, 220)).multiply_adds == expected


@pytest.mark.parametrize("name", ["maxpool", "epitomic_norm", "topographic_norm", "alexnet"])
def test_narrow_networks_train(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, width=0.1, image_size=96, num_classes=7)
    images = torch.randn(2, 3, 96, 96).to(memory_format=torch.channels_last)
    scores = model(images)
    assert scores.shape == (2, 7)
    scores.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.forward_features(images).shape[0] == 2  # type: ignore[operator]


def test_width_keeps_topographic_outputs_whole() -> None:
    model = build("topographic", width=0.3)
    assert get(model, "features.layer1.conv").out_channels == 25
    assert get(model, "features.layer6.conv").out_channels == 2 * 64
    assert get(model, "layer7.linear").out_features % 8 == 0


@pytest.mark.parametrize("name", ["maxpool", "epitomic", "topographic", "alexnet"])
def test_smallest_image(name: str) -> None:
    with pytest.raises(UserError, match="must be at least") as caught:
        build(name, image_size=20)
    minimum = int(str(caught.value).split("at least ")[1].split()[0].rstrip(","))
    assert minimum == SMALLEST[name]
    model = build(name, image_size=minimum)
    layers = count(model, (3, minimum, minimum)).layers
    assert layers[-1].output == (1000,)
    assert [layer.output for layer in layers if layer.name.startswith("features")][-1][1:] == (1, 1)
    with pytest.raises(UserError):
        build(name, image_size=minimum - 1)
