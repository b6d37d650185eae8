"""Writes files so that a crash leaves the old file or the new one, never half of one."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from epitomic.support.errors import UserError

TEMPORARY = ".tmp"  # suffix of files that are being written


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file under a temporary name, syncs it to the disk and renames it to ``path``.

    Args:
        path: Path of the file. Missing folders are made.
        write: Writes the contents to the path that it is given.

    Raises:
        UserError: If the disk is full or the folder cannot be written. The file that was at ``path`` is still there.
    """
    # Several processes may write the same file at once, so each uses a temporary name of its own.
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        mode = temporary.stat().st_mode  # permissions that the user's umask gives
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(mode)  # safetensors makes files that only their owner can read
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:  # after Ctrl-C too, nothing is left behind
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) or type(error).__name__ == "SafetensorError":
            raise UserError(f"cannot write {path}: {error}; the old file, if any, is unchanged") from error
        raise


def write_text(path: Path, text: str) -> None:
    """Writes text by `write_atomically`."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON by `write_atomically`."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        UserError: If the file is missing or holds anything else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise UserError(f"cannot read {path}: {reason}") from None
    if not isinstance(value, dict):
        raise UserError(f"cannot read {path}: it holds {type(value).__name__}, not a JSON object")
    return value


def _sync_folder(folder: Path) -> None:
    """Makes a rename survive a power cut, if the system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
