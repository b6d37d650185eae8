"""The devices of this machine: which one ``auto`` takes, and their names."""

from __future__ import annotations

import torch

from epitomic.support.console import counted
from epitomic.support.errors import UserError
from epitomic.support.machine import processor

CPU = torch.device("cpu")
ACCELERATORS = ("auto", "cpu", "cuda", "mps")


def resolve_accelerator(accelerator: str) -> str:
    """Returns the kind of device that ``accelerator`` means: for ``"auto"``, a GPU by CUDA or ROCm if there is one.

    Torch calls both ``"cuda"``. Apple's ``"mps"`` is taken only by its name, because it has no float64 and our results
    were never compared there.
    """
    if accelerator != "auto":
        return accelerator
    return "cuda" if torch.cuda.is_available() else "cpu"


def open_device(name: str) -> torch.device:
    """Returns the device that ``--device`` names, ``"auto"`` included.

    Raises:
        UserError: If this machine cannot use it.
    """
    try:
        device = torch.device(resolve_accelerator(name))
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"cannot use --device {name} here: {str(error).splitlines()[0]}") from None
    return device


def device_name(device: torch.device) -> str:
    """Returns the name of a GPU, or the processor's with its vector instructions."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"{processor()} with {torch.backends.cpu.get_cpu_capability()}"
    return device.type


def describe_device(device: torch.device, asked: str, processes: int = 1) -> str:
    """Says in one line what a run computes on, and why if nobody named it.

    Args:
        device: Device of this process.
        asked: What ``--accelerator`` said.
        processes: Number of processes of the run.
    """
    kind = device.type.upper() if device.type != "cuda" or torch.version.hip is None else "ROCm"
    text = f"{kind}: {device_name(device)}"
    if device.type == "cpu":
        text += f", {counted(torch.get_num_threads(), 'thread')}"
    if processes > 1:
        text += f", {processes} processes"
    if asked == "auto" and device.type == "cpu":
        text += " (no CUDA or ROCm device found)"
    return text


def allow_tf32(device: torch.device, precision: str) -> None:
    """Lets a CUDA or ROCm device multiply float32 in TF32 if ``precision`` is ``"tf32"``, and forbids it otherwise."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
