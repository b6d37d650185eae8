"""`create_model` with trained weights: from a folder, or from those that ship with the package."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from epitomic.models import create_model, save_pretrained
from epitomic.support.errors import UserError

SMALL = {"image_size": 8, "width": 0.25}


@pytest.mark.parametrize(("name", "options"), [("epitomic_small", SMALL), ("epitomic_fast", {"width": 0.25})])
def test_another_number_of_classes_keeps_the_new_head(tmp_path: Path, name: str, options: dict[str, float]) -> None:
    model = create_model(name, **options)  # type: ignore[arg-type]
    save_pretrained(model, tmp_path)
    other = create_model(name, num_classes=3, pretrained=tmp_path, **options)  # type: ignore[arg-type]
    own, new = model.state_dict(), other.state_dict()
    assert all(torch.equal(own[name], new[name]) for name in own if not name.startswith("out."))


def test_what_is_not_given_is_as_it_was_saved(tmp_path: Path) -> None:
    model = create_model("epitomic_small", batch_norm=True, **SMALL).eval()  # type: ignore[arg-type]
    save_pretrained(model, tmp_path)
    again = create_model("epitomic_small", pretrained=tmp_path).eval()
    assert again.config == model.config
    images = torch.randn(3, 1, 8, 8)
    assert torch.equal(again(images), model(images))
    with pytest.raises(UserError, match="has weights of 'epitomic_small', not of 'maxpool_small'"):
        create_model("maxpool_small", pretrained=tmp_path)
    with pytest.raises(UserError, match="or one that ships with the package"):
        create_model("epitomic_small", pretrained="nothing")
    with pytest.raises(UserError, match=r"must name the weights .* one of 'cifar10', 'mnist', which ship"):
        create_model("epitomic_small", pretrained=True)
    with pytest.raises(UserError, match="none ships with the package"):
        create_model("maxout_small", pretrained=True)
    assert create_model("epitomic_small", pretrained=False, **SMALL)  # type: ignore[arg-type]


def test_what_it_was_trained_with_comes_along() -> None:
    model = create_model("epitomic_small", pretrained="cifar10")
    assert model.pretrained_cfg["classes"][:2] == ["airplane", "automobile"]  # type: ignore[index]
    assert len(model.pretrained_cfg["standardize"]["mean"]) == 3  # type: ignore[index]
