"""Training on several devices or processes: Lightning Fabric, and what all processes must agree on."""

from __future__ import annotations

import torch
from lightning_fabric import Fabric
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn

from epitomic.support.devices import resolve_accelerator
from epitomic.support.errors import UserError
from epitomic.training.recipe import Recipe
from epitomic.training.setup import Settings


def create_fabric(recipe: Recipe, settings: Settings) -> Fabric:
    """Returns Lightning Fabric for the devices of the settings; it is not launched yet."""
    try:
        return Fabric(
            accelerator=resolve_accelerator(settings.accelerator),
            devices=settings.devices,
            num_nodes=settings.nodes,
            strategy="ddp" if settings.devices * settings.nodes > 1 else "auto",
            precision=recipe.precision,  # type: ignore[arg-type]
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        chosen = f"--accelerator {settings.accelerator} --devices {settings.devices} --precision {recipe.precision}"
        raise UserError(f"cannot use {chosen} here: {error}") from None


def sum_over_processes(fabric: Fabric, *values: float) -> list[float]:
    """Returns the sum of each value over all processes."""
    if fabric.world_size == 1:
        return list(values)
    total = fabric.all_reduce(torch.tensor(values, dtype=torch.float64, device=fabric.device), reduce_op="sum")
    assert isinstance(total, Tensor)
    return total.tolist()


def share_statistics(fabric: Fabric, model: nn.Module) -> None:
    """Gives every process the running statistics of the first one.

    Each process has seen its own part of the batch. After this, all have the network that a checkpoint holds.
    """
    if fabric.world_size > 1:
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, src=0)
