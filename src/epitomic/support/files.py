"""Writes files so that a crash leaves the old file or the new one, never half of one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from epitomic.support.errors import UserError

TEMPORARY = ".tmp"  # suffix of files that are being written
SEAL_LENGTH = 64  # hexadecimal digits
SEAL = "sha256"  # entry of a JSON object with the checksum of all its other entries


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
    """Writes text by `write_atomically`.

    Half a surrogate pair, which stands for a byte of a file name that is not UTF-8, becomes an escape. JSON reads it
    back.
    """
    contents = text.encode(errors="backslashreplace")
    write_atomically(path, lambda temporary: temporary.write_bytes(contents))


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON by `write_atomically`."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        UserError: If the file is missing or holds anything else.
    """
    try:
        contents = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise UserError(f"cannot read {path}: {reason}") from None
    return parse_json(contents, path)


def parse_json(contents: bytes, path: Path) -> dict[str, Any]:
    """Parses the contents of ``path``, which must be a JSON object."""
    try:
        value = json.loads(contents.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"cannot read {path}: it holds {type(value).__name__}, not a JSON object")
    return value


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Writes a JSON object with a SHA-256 of its own contents."""
    write_json(path, {**value, SEAL: _seal(value)})


def check_seal(path: Path, value: dict[str, Any]) -> dict[str, Any]:
    """Returns the other entries of a JSON object that was read from ``path`` and that `write_sealed` wrote.

    Raises:
        UserError: If the contents do not match their SHA-256.
    """
    entries = {key: entry for key, entry in value.items() if key != SEAL}
    try:
        same = value.get(SEAL) == _seal(entries)
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise UserError(f"{path} is damaged: its contents do not match their SHA-256")
    return entries


def read_sealed(path: Path) -> dict[str, Any]:
    """Reads a JSON object that `write_sealed` wrote, without its seal. Files of older versions have none.

    Raises:
        UserError: If the file is missing, is no JSON object, is empty, or was changed since it was written.
    """
    value = read_json(path)
    if not value:
        raise UserError(f"{path} is damaged: it has no entries")
    if SEAL not in value and not _has_renamed_seal(value):
        return value
    try:
        return check_seal(path, value)
    except UserError as error:
        raise UserError(f'{error}; if you changed it on purpose, remove its entry "{SEAL}"') from None


def _has_renamed_seal(value: dict[str, Any]) -> bool:
    """Whether an entry is the seal of all others: then damage has changed its name."""
    digests = [name for name, entry in value.items() if isinstance(entry, str) and len(entry) == SEAL_LENGTH]
    return any(value[name] == _seal({key: other for key, other in value.items() if key != name}) for name in digests)


def _seal(value: dict[str, Any]) -> str:
    return sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(errors="backslashreplace")
    )


def sha256(contents: bytes) -> str:
    """Returns the SHA-256 of some bytes, as hexadecimal digits."""
    return hashlib.sha256(contents).hexdigest()


def read_checked(path: Path, size: int, digest: str) -> bytes:
    """Reads a file whose size and SHA-256 are known.

    Raises:
        UserError: If the file is missing, or has another size or other contents.
    """
    try:
        found = path.stat().st_size
        contents = path.read_bytes() if found == size else b""
    except FileNotFoundError:
        raise UserError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if found != size:
        raise UserError(f"{path} is truncated or altered: it has {found} bytes, not {size}")
    if sha256(contents) != digest:
        raise UserError(f"{path} is damaged: its contents do not match their SHA-256")
    return contents


def _sync_folder(folder: Path) -> None:
    """Makes a rename survive a power cut, if the system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
