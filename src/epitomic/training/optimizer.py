"""The optimiser, and which parameters it decays."""

from __future__ import annotations

import torch
from torch import nn

from epitomic.layers import is_normalized
from epitomic.training.recipe import Optimizer


def parameter_groups(model: nn.Module, config: Optimizer) -> list[dict[str, object]]:
    """Groups the parameters: decayed weights, weights of normalised layers, and biases with batch norms.

    A group's ``rate`` multiplies the learning rate.
    """
    decayed: list[nn.Parameter] = []
    normalized: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            kind = vectors if parameter.dim() < 2 else normalized if is_normalized(module) else decayed
            kind.append(parameter)
    groups = (
        {"params": decayed, "weight_decay": config.weight_decay, "rate": 1.0},
        {"params": normalized, "weight_decay": 0.0, "rate": 1.0},
        {"params": vectors, "weight_decay": 0.0, "rate": config.bias_rate},
    )
    return [group for group in groups if group["params"]]


def create_optimizer(model: nn.Module, config: Optimizer) -> torch.optim.SGD:
    """Returns stochastic gradient descent with the recipe's settings."""
    return torch.optim.SGD(
        parameter_groups(model, config),
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov and config.momentum > 0,
        fused=True,
    )
