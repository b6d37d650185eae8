"""Saves tensors and JSON in one safetensors file with a checksum: it cannot run code, and damage is noticed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from epitomic.support.errors import UserError
from epitomic.support.files import write_atomically

KEY = "epitomic"  # the only metadata entry: safetensors would write several in no fixed order


class DamagedFileError(UserError):
    """A file is truncated, altered or of another kind."""


def save_tensors(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Writes tensors, and ``state`` as JSON in the file's metadata, all or nothing (`write_atomically`).

    Raises:
        UserError: If the file cannot be written.
    """
    _need_safetensors()
    from safetensors.torch import save_file

    tensors = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    text = json.dumps(state)
    metadata = {KEY: f"{_digest(tensors, text)} {text}"}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))


def load_tensors(path: Path, *, need_digest: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads the tensors and the state that `save_tensors` wrote.

    Args:
        path: Path of the file.
        need_digest: Whether to refuse safetensors files of other programs, which have no checksum.

    Raises:
        DamagedFileError: If the file's contents have changed since it was written.
        UserError: If there is no such file.
    """
    _need_safetensors()
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"cannot read {path}: there is no such file") from None
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError, AttributeError) as error:
        raise DamagedFileError(f"{path} is damaged or not a safetensors file: {error}") from None
    if KEY not in metadata and not need_digest:
        return tensors, {}
    digest, _, text = metadata.get(KEY, "").partition(" ")
    if digest != _digest(tensors, text):
        raise DamagedFileError(f"{path} is damaged: its contents do not match its checksum")
    try:
        state = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged: its state is not JSON: {error}") from None
    if not isinstance(state, dict):
        raise DamagedFileError(f"{path} is damaged: its state is {type(state).__name__}, not an object")
    return tensors, state


def _need_safetensors() -> None:
    try:
        import safetensors  # noqa: F401
    except ModuleNotFoundError:
        raise UserError("reading and writing weights needs safetensors: pip install 'epitomic[train]'") from None


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
