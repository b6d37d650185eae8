"""Schedule, optimiser groups, weight average, signals."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

from epitomic.layers import EpitomicConv2d
from epitomic.models import create_model
from epitomic.training.averaging import WeightAverage
from epitomic.training.loop import Trainer
from epitomic.training.optimizer import create_optimizer, parameter_groups
from epitomic.training.recipe import Optimizer, Recipe, Schedule
from epitomic.training.run import Run
from epitomic.training.schedule import LearningRate
from epitomic.training.setup import Settings
from epitomic.training.signals import StopSignals


def test_linear_and_cosine_end_at_zero() -> None:
    for name in ("linear", "cosine"):
        rate = LearningRate(Schedule(name=name, warmup=2), base=0.1, steps_per_epoch=10, epochs=10)
        rates = [rate.at(step) for step in range(100)]
        assert rates[:20] == sorted(rates[:20])
        assert max(rates) == pytest.approx(0.1, rel=0.05)
        assert rates[20:] == sorted(rates[20:], reverse=True)
        assert rates[-1] < 0.002


def test_plateau_divides_when_validation_stops_improving() -> None:
    rate = LearningRate(Schedule(name="plateau", patience=2, drops=2), base=0.01, steps_per_epoch=1, epochs=99)
    rates = []
    for error in (0.5, 0.4, 0.4, 0.45, 0.3, 0.3, 0.3, 0.3, 0.3):
        assert not rate.finished
        rates.append(rate.at(0))
        again = LearningRate(rate.config, 0.01, 1, 99)
        again.restore(rate.state())
        assert again.state() == rate.state()
        rate.end_epoch(error)
    assert rates == pytest.approx([0.01] * 4 + [0.001] * 3 + [0.0001] * 2)
    assert rate.finished


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
    trainer = Trainer(recipe, Run(tmp_path / "run"), Settings(quiet=True))
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    assert trainer.step == 1
    moved = torch.cat([(p - old).flatten() for p, old in zip(trainer.model.parameters(), before, strict=True)])
    assert moved.norm().item() == pytest.approx(0.5 * 1e-3, rel=1e-3)


def test_the_average_follows() -> None:
    linear = torch.nn.Linear(2, 2)
    model = torch.nn.Sequential(linear, torch.nn.BatchNorm1d(2))
    average = WeightAverage(model, 0.9)
    with torch.no_grad():
        linear.weight.fill_(1.0)
        model.state_dict()["1.running_mean"].fill_(1.0)
    for step in range(300):
        average.update(step)
    weight, mean = average.model.state_dict()["0.weight"], average.model.state_dict()["1.running_mean"]
    assert torch.allclose(weight, torch.ones(2, 2))
    assert torch.allclose(mean, torch.ones(2))


def test_signals_are_noted_and_handlers_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as stop:
        assert stop.received == 0
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before
