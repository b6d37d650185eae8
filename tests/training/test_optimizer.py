"""Which parameters are decayed, and how a step is made."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from epitomic.layers import EpitomicConv2d
from epitomic.models import create_model
from epitomic.training.optimizer import create_optimizer, parameter_groups
from epitomic.training.recipe import Optimizer, Recipe, Schedule
from epitomic.training.run_folder import RunFolder
from epitomic.training.setup import Settings
from epitomic.training.trainer import Trainer


@pytest.mark.parametrize("name", ["epitomic_small_norm", "epitomic_small", "maxpool_norm"])
def test_no_decay_on_normalised_layers_and_biases(name: str) -> None:
    model = create_model(name, width=0.1, **({"image_size": 80} if "small" not in name else {}))  # type: ignore[arg-type]
    decayed, *others = parameter_groups(model, Optimizer(weight_decay=5e-4, bias_rate=8.0))
    names = {id(p): n for n, p in model.named_parameters()}
    decayed_names = {names[id(p)] for p in decayed["params"]}  # type: ignore[attr-defined]
    assert all(n.endswith("weight") for n in decayed_names)
    assert "out.weight" in decayed_names
    assert ("features.layer1.conv.weight" in decayed_names) is (name == "epitomic_small")
    if name == "maxpool_norm":
        assert "features.layer3.conv.weight" in decayed_names
    rest = [p for group in others for p in group["params"]]  # type: ignore[attr-defined]
    assert all(group["weight_decay"] == 0 for group in others)
    assert len(names) == len(decayed["params"]) + len(rest)  # type: ignore[arg-type]
    rates = {names[id(p)]: group["rate"] for group in (decayed, *others) for p in group["params"]}  # type: ignore[attr-defined]
    assert all(rate == (8.0 if name.endswith("bias") else 1.0) for name, rate in rates.items())


def test_sgd_is_the_textbook_one() -> None:
    layer = EpitomicConv2d(1, 2, 3)
    torch.nn.init.constant_(layer.weight, 1.0)
    optimizer = create_optimizer(layer, Optimizer(lr=0.1, momentum=0.9, weight_decay=0.01))
    velocity, weight = 0.0, 1.0
    for _ in range(3):
        layer.weight.grad = torch.full_like(layer.weight, 2.0)
        optimizer.step()
        velocity = 0.9 * velocity + 2.0 + 0.01 * weight
        weight -= 0.1 * velocity
    assert layer.weight.flatten()[0].item() == pytest.approx(weight, rel=1e-5)


def test_long_gradients_are_shortened(tmp_path: Path) -> None:
    optimizer = Optimizer(lr=0.5, momentum=0.0, weight_decay=0.0, max_norm=1e-3)
    recipe = Recipe(optimizer=optimizer, schedule=Schedule(name="constant"), epochs=1, batch_size=1200)  # one step
    trainer = Trainer(recipe, RunFolder(tmp_path / "run"), Settings(quiet=True))
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    assert trainer.step == 1
    moved = torch.cat([(p - old).flatten() for p, old in zip(trainer.model.parameters(), before, strict=True)])
    assert moved.norm().item() == pytest.approx(0.5 * 1e-3, rel=1e-3)
