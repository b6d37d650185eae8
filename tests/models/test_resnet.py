"""The residual network and its twins: sizes, timm's interface, and one layer that differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from epitomic.models import count, create_model, from_pretrained, save_pretrained
from epitomic.models.resnet import KINDS, BlurPool, ResNet
from epitomic.support.errors import UserError

NAMES = [f"{kind}_resnet" for kind in KINDS]


def small(kind: str = "epitomic", **options: Any) -> ResNet:
    torch.manual_seed(0)
    options = {"num_classes": 5, "width": 0.25, "image_size": 32, **options}
    model = create_model(f"{kind}_resnet", **options)
    assert isinstance(model, ResNet)
    return model.eval()


def test_it_has_the_size_that_was_asked_for() -> None:
    counts = {name: count(create_model(name), (3, 64, 64)) for name in NAMES}
    assert 2.7e6 < counts["epitomic_resnet"].parameters < 3.3e6
    assert counts["epitomic_resnet"].multiply_adds <= 60e6
    assert counts["strided_resnet"].parameters == counts["blur_resnet"].parameters
    assert counts["strided_resnet"].parameters == counts["maxpool_resnet"].parameters


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [32, 45, 64])
def test_all_kinds_have_the_same_shapes_and_train(kind: str, size: int) -> None:
    model = small(kind).train()
    images = torch.randn(2, 3, size, size)
    shapes = [tuple(found.shape) for found in model.forward_intermediates(images)]
    side = size
    for shape, info in zip(shapes, model.feature_info, strict=True):
        side = -(-side // 2)
        assert shape == (2, info["num_chs"], side, side)
    model(images).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_timms_interface() -> None:
    model = small()
    images = torch.randn(2, 3, 32, 32)
    features = model.forward_features(images)
    assert torch.equal(model.forward_head(features), model(images))
    assert model.forward_head(features, pre_logits=True).shape == (2, model.num_features)
    assert model.get_classifier() is model.out
    model.reset_classifier(7)
    assert model(images).shape == (2, 7)
    assert model.config["num_classes"] == model.num_classes == 7
    model.reset_classifier(0)
    assert torch.equal(model(images), model.forward_head(features, pre_logits=True))
    found = small(features_only=True)(images)
    assert [f.shape[1] for f in found] == [info["num_chs"] for info in model.feature_info]
    assert torch.equal(found[-1], features)
    assert [info["reduction"] for info in model.feature_info] == [2, 4, 8, 16, 32]


def test_a_new_classifier_can_be_saved(tmp_path: Path) -> None:
    model = small()
    model.reset_classifier(7)
    save_pretrained(model, tmp_path)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(from_pretrained(tmp_path)(images), model(images))


def test_the_size_of_the_images_does_not_change_the_weights(tmp_path: Path) -> None:
    model = small()
    save_pretrained(model, tmp_path)
    other = create_model("epitomic_resnet", pretrained=tmp_path, image_size=64).eval()
    images = torch.randn(1, 3, 64, 64)
    assert torch.equal(other(images), model(images))


def test_blur_pool_is_the_binomial_filter_at_every_second_pixel() -> None:
    x = torch.randn(1, 2, 7, 8)
    line = torch.tensor([0.25, 0.5, 0.25])
    padded = F.pad(x, (1, 1, 1, 1), mode="reflect")
    rows = sum(w * padded[:, :, i : i + 7] for i, w in enumerate(line))
    both = sum(w * rows[..., i : i + 8] for i, w in enumerate(line))
    torch.testing.assert_close(BlurPool(2)(x), both[:, :, ::2, ::2])


def test_a_block_starts_as_the_identity() -> None:
    model = small(depth=2)
    x = torch.rand(1, 16, 4, 4)
    block = model.features[2][1]  # type: ignore[index]
    x = torch.rand(1, block.conv1.in_channels, 4, 4)
    assert torch.equal(block(x), x)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(UserError, match="at least 32"):
        small(image_size=16)
    with pytest.raises(UserError, match="depth must be at least 1"):
        small(depth=0)
