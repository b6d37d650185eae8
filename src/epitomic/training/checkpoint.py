"""Checkpoints that survive a crash: a new one is complete on disk before the oldest is removed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epitomic.models.pretrained import load_state
from epitomic.support.errors import UserError
from epitomic.support.files import TEMPORARY
from epitomic.support.tensorfile import DamagedFileError, load_tensors, save_tensors
from epitomic.training.averaging import WeightAverage

SUFFIX = ".safetensors"
KEEP = 2  # checkpoints
MOMENTUM = "momentum_buffer"  # torch's name
FORMAT = 1  # version of the contents; other versions are refused


class DamageWarning(UserWarning):
    """Says that a checkpoint is damaged and an older one is used."""


class Checkpoints:
    """The checkpoints of a run, by step.

    Args:
        folder: Folder of the checkpoints; it need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self) -> list[Path]:
        """Returns the existing checkpoints, oldest first."""
        return sorted(self.folder.glob(f"step-*{SUFFIX}"))

    def path(self, step: int) -> Path:
        """Returns the path of the checkpoint after ``step`` steps; the file need not exist."""
        return self.folder / f"step-{step:010d}{SUFFIX}"

    def save(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> Path:
        """Writes a checkpoint, then removes all but the newest two."""
        path = self.path(step)
        try:
            save_tensors(path, tensors, {"format": FORMAT, **state})
        except UserError as error:
            kept = self.files()
            raise UserError(f"{error}; the last good checkpoint is {kept[-1] if kept else 'not there yet'}") from None
        for old in self.files()[:-KEEP]:
            old.unlink(missing_ok=True)
        return path

    def load(self) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
        """Returns path, tensors and state of the newest intact checkpoint, or None if there are no checkpoints.

        Damaged checkpoints are skipped with a `DamageWarning`.

        Raises:
            UserError: If there are checkpoints and all are damaged.
        """
        for leftover in self.folder.glob(f"*{TEMPORARY}"):
            leftover.unlink(missing_ok=True)
        files, damage = self.files(), None
        for path in reversed(files):
            try:
                tensors, state = load_tensors(path)
                if state.get("format") != FORMAT:
                    raise UserError(f"{path} has format {state.get('format')}, and this version reads {FORMAT}")
                return path, tensors, state
            except DamagedFileError as error:
                damage = error
                warnings.warn(f"{error}; trying the one before", DamageWarning, stacklevel=2)
        if damage is not None:
            raise UserError(f"{damage}; no checkpoint in {self.folder} is intact: remove the folder to start again")
        return None

    def set_aside_after(self, good: Path) -> None:
        """Renames the damaged checkpoints that are newer than ``good``."""
        for path in self.files():
            if path > good:
                path.replace(path.with_name(path.name + ".damaged"))


def collect(model: nn.Module, optimizer: torch.optim.Optimizer, average: WeightAverage | None) -> dict[str, Tensor]:
    """Returns all tensors of a training by name."""
    tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
    if average is not None:
        tensors.update({f"average.{name}": t for name, t in average.model.state_dict().items()})
    for index, entries in optimizer.state_dict()["state"].items():
        tensors.update({f"optimizer.{index}.{key}": t for key, t in entries.items() if isinstance(t, Tensor)})
    return tensors


def restore(
    tensors: dict[str, Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage | None,
    path: Path,
) -> None:
    """Puts the tensors of `collect` back, or raises an error that names the file and the tensor that does not fit."""
    load_state(model, _part(tensors, "model."), path)
    if average is not None:
        load_state(average.model, _part(tensors, "average."), path)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    entries: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _part(tensors, "optimizer.").items():
        index, _, key = name.partition(".")
        if not index.isdecimal() or int(index) >= len(parameters) or parameters[int(index)].shape != tensor.shape:
            raise UserError(f"{path} is of another network: its 'optimizer.{name}' fits no parameter")
        entries.setdefault(int(index), {})[key] = tensor
    momenta = (group["momentum"] > 0 for group in optimizer.param_groups for _ in group["params"])
    for number, (parameter, moves) in enumerate(zip(parameters, momenta, strict=True)):
        if moves and parameter.requires_grad and MOMENTUM not in entries.get(number, {}):
            raise UserError(f"{path} is unsound: it has no tensor 'optimizer.{number}.{MOMENTUM}'")
    state = optimizer.state_dict()
    optimizer.load_state_dict({"state": entries, "param_groups": state["param_groups"]})


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
