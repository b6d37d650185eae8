"""The moving average of the weights."""

from __future__ import annotations

import torch

from epitomic.training.averaging import WeightAverage


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
