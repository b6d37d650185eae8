"""The small networks of the paper and those to compare them with."""

from __future__ import annotations

import pytest
import torch

from epitomic.models import count, create_model

SMALL = ["epitomic_small", "epitomic_small_norm", "topographic_small_norm", "maxpool_small", "maxout_small"]

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
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(40):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.3


def test_memory_format_does_not_change_the_result() -> None:
    model = create_model("epitomic_small", in_channels=3, image_size=16).eval()
    images = torch.randn(4, 3, 16, 16)
    assert torch.allclose(model(images), model(images.to(memory_format=torch.channels_last)), atol=1e-5)
