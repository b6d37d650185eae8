"""Writing files so that a crash leaves the old one or the new one, never half of one."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from epitomic.errors import UserError

TEMPORARY = ".tmp"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Has ``write`` make a temporary file beside ``path``, syncs it to the disk and renames it.

    Raises:
        UserError: If the disk is full or the folder cannot be written; what was at ``path`` is still there.
    """
    # A name of its own for each process: several may write the same file, on one machine or a shared disk.
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        mode = temporary.stat().st_mode  # as the user's umask has it
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(mode)  # safetensors makes files that nobody else can read
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:  # Ctrl-C too leaves nothing behind
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) or type(error).__name__ == "SafetensorError":
            raise UserError(f"cannot write {path}: {error}; what was there before is untouched") from error
        raise


def write_text(path: Path, text: str) -> None:
    """`write_atomically`, for text."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """`write_atomically`, for what JSON can hold."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; an error that names the file if it is missing or is not one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = "it is not there" if isinstance(error, FileNotFoundError) else str(error)
        raise UserError(f"cannot read {path}: {reason}") from None
    if not isinstance(value, dict):
        raise UserError(f"cannot read {path}: it holds {type(value).__name__}, not a JSON object")
    return value


def _sync_folder(folder: Path) -> None:
    """Makes a rename last through a power cut, where the system allows it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
