"""The small networks of the paper and those to compare them with."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from epitomic.models import count, create_model
from tests.models.learning import learn_batch

SMALL = [
    *("epitomic_small", "epitomic_small_norm", "epitomic_small_maxpool_init", "topographic_small_norm"),
    *("maxpool_small", "maxout_small"),
]

SHARED = ("features.layer1.dropout", "features.layer2.dropout", "features.layer3.dropout", "layer4.linear")


@pytest.mark.parametrize("size", [8, 9, 13, 28, 32, 64])
def test_all_have_the_same_shape(size: int) -> None:
    shapes = set()
    for name in SMALL:
        model = create_model(name, image_size=size, in_channels=3)
        outputs = {layer.name: layer.output for layer in count(model, (3, size, size)).layers}
        shapes.add(tuple(outputs[name] for name in SHARED))
    assert len(shapes) == 1


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("batch_norm", [False, True])
def test_learns_a_batch(name: str, batch_norm: bool) -> None:
    torch.manual_seed(0)
    model = create_model(name, image_size=8, width=0.5, dropout=0.0, conv_dropout=0.0, batch_norm=batch_norm)
    images, labels = torch.randn(16, 1, 8, 8), torch.arange(16) % 10
    assert learn_batch(model, images, labels, steps=40, lr=0.05) < 0.3


def test_memory_format_does_not_change_the_result() -> None:
    model = create_model("epitomic_small", in_channels=3, image_size=16).eval()
    images = torch.randn(4, 3, 16, 16)
    assert torch.allclose(model(images), model(images.to(memory_format=torch.channels_last)), atol=1e-5)


def test_a_network_starts_as_max_pooling() -> None:
    model = create_model("epitomic_small_maxpool_init", in_channels=3, image_size=16)
    layer = model.get_submodule("features.layer2.conv")  # epitomes of 5 x 5 with 2 x 2 filters of 4 x 4, padding 1
    weight, x = layer.weight.detach(), torch.randn(2, 48, 8, 8)  # type: ignore[operator]
    pooled = F.max_pool2d(F.conv2d(x, weight[..., 1:-1, 1:-1], padding=1), 2)
    torch.testing.assert_close(layer(x), pooled, rtol=1e-4, atol=1e-5)
    assert weight[..., 1:-1, 1:-1].abs().min() > 0
    assert weight.abs().sum() == pytest.approx(weight[..., 1:-1, 1:-1].abs().sum())
    names = ("epitomic_small", "epitomic_small_maxpool_init")
    parameters, other = (create_model(name).state_dict() for name in names)
    assert {k: v.shape for k, v in parameters.items()} == {k: v.shape for k, v in other.items()}
