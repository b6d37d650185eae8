"""Training on several devices or processes: Lightning Fabric, and what all processes must agree on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from epitomic.support.devices import allow_tf32, resolve_accelerator
from epitomic.support.errors import UserError
from epitomic.training.processes import STARTED, connect_own, join_starter
from epitomic.training.recipe import Recipe
from epitomic.training.setup import Settings

# How gloo, NCCL and torch's store say that another process has gone or does not answer.
LOST = re.compile(r"gloo|nccl|connect|socket|broken pipe|clients joined|a process ended", re.IGNORECASE)
LATE = re.compile(r"tim(ed|e) ?out", re.IGNORECASE)


class LostProcessError(UserError):
    """Another process of this training has ended or does not answer."""


@contextmanager
def lost_processes_named(settings: Settings) -> Iterator[None]:
    """Turns what torch raises when it loses another process into `LostProcessError`."""
    try:
        yield
    except (torch.distributed.DistError, RuntimeError) as error:
        text = str(error)
        if settings.devices * settings.nodes == 1 or not (LOST.search(text) or LATE.search(text)):
            raise
        problem = "another process of this training has ended"
        if LATE.search(text):
            problem = f"another process of this training has not answered for {settings.wait:g} seconds (--wait)"
        raise LostProcessError(problem) from error


def create_fabric(recipe: Recipe, settings: Settings) -> Fabric:
    """Returns Lightning Fabric for the devices of the settings; it is not launched yet."""
    limit = timedelta(seconds=settings.wait)
    try:
        fabric = Fabric(
            accelerator=resolve_accelerator(settings.accelerator),
            devices=settings.devices,
            num_nodes=settings.nodes,
            strategy=DDPStrategy(timeout=limit) if settings.devices * settings.nodes > 1 else "auto",
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


def connect(fabric: Fabric, settings: Settings) -> None:
    """Starts the processes of ``--devices``, or joins those that were started.

    When torchrun starts them again after a loss, its store still has the addresses of the processes before. So each
    start has its own part of the store.
    """
    limit, processes = timedelta(seconds=settings.wait), settings.devices * settings.nodes
    backend = "nccl" if fabric.device.type == "cuda" else "gloo"
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if processes == 1:
        pass
    elif STARTED in os.environ:
        join_starter(backend, processes, limit)
    elif _starts_others(fabric):
        connect_own(backend, processes, limit)
    elif restarts != "0":
        store, rank, size = next(rendezvous("env://", timeout=limit))
        shared = PrefixStore(f"restart {restarts}", store)
        torch.distributed.init_process_group(backend, store=shared, rank=rank, world_size=size, timeout=limit)
    fabric.launch()


def _starts_others(fabric: Fabric) -> bool:
    """Whether nothing else, such as torchrun or SLURM, has started the other processes."""
    environment = fabric.strategy.cluster_environment if isinstance(fabric.strategy, DDPStrategy) else None
    return environment is not None and not environment.creates_processes_externally


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
