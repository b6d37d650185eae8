"""The optimiser, and which parameters it decays."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from epitomic.layers import is_normalized
from epitomic.training.recipe import Optimizer, Start


def parameter_groups(model: nn.Module, config: Optimizer, start: Start | None = None) -> list[dict[str, object]]:
    """Groups the parameters: decayed weights, weights of normalised layers, and biases with batch norms.

    With trained weights to start from, the last layer, ``out``, has groups of its own, and the other layers learn at a
    fraction of its rate. Frozen layers are in no group; their parameters need no gradient any more.

    A group's ``rate`` multiplies the learning rate.
    """
    if start is None or start.weights is None:
        return _groups(model.modules(), config, 1.0)
    head = {*model.out.modules()} if isinstance(model.out, nn.Module) else set()
    body = [module for module in model.modules() if module not in head]
    if start.freeze:
        for module in body:
            for parameter in module.parameters(recurse=False):
                parameter.requires_grad_(False)
        return _groups(head, config, 1.0)
    return _groups(head, config, 1.0) + _groups(body, config, start.rate or 1.0)


def _groups(modules: Iterable[nn.Module], config: Optimizer, rate: float) -> list[dict[str, object]]:
    decayed: list[nn.Parameter] = []
    normalized: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for module in modules:
        for parameter in module.parameters(recurse=False):
            kind = vectors if parameter.dim() < 2 else normalized if is_normalized(module) else decayed
            kind.append(parameter)
    groups = (
        {"params": decayed, "weight_decay": config.weight_decay, "rate": rate},
        {"params": normalized, "weight_decay": 0.0, "rate": rate},
        {"params": vectors, "weight_decay": 0.0, "rate": rate * config.bias_rate},
    )
    return [group for group in groups if group["params"]]


def create_optimizer(model: nn.Module, config: Optimizer, start: Start | None = None) -> torch.optim.SGD:
    """Returns stochastic gradient descent with the recipe's settings."""
    return torch.optim.SGD(
        parameter_groups(model, config, start),
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov and config.momentum > 0,
        fused=True,
    )
