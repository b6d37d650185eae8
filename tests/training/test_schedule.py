"""The learning rate of each step."""

from __future__ import annotations

import pytest

from epitomic.training.recipe import Schedule
from epitomic.training.schedule import LearningRate


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
        again.restore(rate.state(), "checkpoint")
        assert again.state() == rate.state()
        rate.end_epoch(error)
    assert rates == pytest.approx([0.01] * 4 + [0.001] * 3 + [0.0001] * 2)
    assert rate.finished
