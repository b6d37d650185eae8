"""Training on several devices or processes: Lightning Fabric, and what all processes must agree on."""

from __future__ import annotations

import torch
from lightning_fabric import Fabric
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn

from epitomic.support.devices import allow_tf32, resolve_accelerator
from epitomic.support.errors import UserError
from epitomic.training.recipe import Recipe
from epitomic.training.setup import Settings


def create_fabric(recipe: Recipe, settings: Settings) -> Fabric:
    """Returns Lightning Fabric for the devices of the settings; it is not launched yet."""
    try:
        fabric = Fabric(
            accelerator=resolve_accelerator(settings.accelerator),
            devices=settings.devices,
            num_nodes=settings.nodes,
            strategy="ddp" if settings.devices * settings.nodes > 1 else "auto",
            precision="32-true" if recipe.precision == "tf32" else recipe.precision,  # type: ignore[arg-type]
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        chosen = f"--accelerator {settings.accelerator} --devices {settings.devices} --precision {recipe.precision}"
        raise UserError(f"cannot use {chosen} here: {error}") from None
    allow_tf32(fabric.device, recipe.precision)
    return fabric


def normalize_together(model: nn.Module, wanted: str, device: torch.device, processes: int) -> nn.Module:
    """Lets batch norms normalise over all processes, where that is wanted and there are several.

    Args:
        model: The network.
        wanted: ``"auto"`` (on CUDA and ROCm), ``"on"`` or ``"off"``.
        device: Device of this process.
        processes: Number of processes.

    Raises:
        UserError: If it is wanted where torch cannot do it.
    """
    if wanted == "on" and device.type != "cuda":
        raise UserError(f"--sync-batch-norm on needs CUDA or ROCm, and this run computes on {device.type}")
    if wanted == "off" or processes == 1 or device.type != "cuda":
        return model
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)


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
