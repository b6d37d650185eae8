"""The networks for fast training on small images."""

from __future__ import annotations

import pytest
import torch

from epitomic.models import count, create_model
from tests.models.learning import learn_batch


@pytest.mark.parametrize("size", [16, 28, 31, 32, 48])
def test_twins_have_the_same_shape(size: int) -> None:
    shapes = []
    for name in ("epitomic_fast", "maxpool_fast"):
        layers = count(create_model(name, image_size=size), (3, size, size)).layers
        shapes.append([layer.output for layer in layers if layer.name.endswith("norm")])
    assert shapes[0] == shapes[1]
    assert shapes[0][-1] == (256, (size - 1) // 8, (size - 1) // 8)


def test_the_sizes_of_the_docstring() -> None:
    layers = {layer.name: layer.output for layer in count(create_model("epitomic_fast"), (3, 32, 32)).layers}
    assert layers["whitening"] == (24, 31, 31)
    assert [layers[f"features.block{i}.norm"] for i in (1, 2, 3)] == [(64, 15, 15), (256, 7, 7), (256, 3, 3)]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_learns_a_batch_and_leaves_the_whitening_alone(depth: int) -> None:
    torch.manual_seed(0)
    model = create_model("epitomic_fast", image_size=16, width=0.25, depth=depth)
    images, labels = torch.randn(16, 3, 16, 16), torch.arange(16) % 10
    model.fit(images)  # type: ignore[operator]
    before = model.whitening.weight.clone()  # type: ignore[union-attr,operator]
    assert learn_batch(model, images, labels, steps=50, lr=0.2) < 0.5
    assert torch.equal(model.whitening.weight, before)  # type: ignore[union-attr,arg-type]


def test_plain_convolutions_start_as_the_identity() -> None:
    block = create_model("epitomic_fast", width=0.25).features.block2  # type: ignore[union-attr]
    x = torch.randn(2, 64, 7, 7)
    assert torch.equal(block.rest[0].conv(x), x)  # type: ignore[union-attr,index]
