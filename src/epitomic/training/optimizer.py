"""The optimiser, and which parameters have weight decay."""

from __future__ import annotations

import torch
from torch import nn

from epitomic.layers import EpitomicConv2d, NormConv2d
from epitomic.training.recipe import Optimizer


def is_normalized(module: nn.Module) -> bool:
    """Whether a layer has mean + contrast normalisation (Eq. 3): its weights' size does not matter, so no decay."""
    return isinstance(module, NormConv2d) or (isinstance(module, EpitomicConv2d) and module.normalize)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Two groups: weights with decay; biases, batch norms and weights of normalised layers without."""
    decay: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            (decay if parameter.dim() > 1 and not is_normalized(module) else plain).append(parameter)
    groups = ({"params": decay, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]


def create_optimizer(model: nn.Module, config: Optimizer) -> torch.optim.SGD:
    """SGD as the recipe says."""
    return torch.optim.SGD(
        parameter_groups(model, config.weight_decay),
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov and config.momentum > 0,
        fused=True,
    )
