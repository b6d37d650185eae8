"""The file that keeps the timings and comparisons of algorithms on this machine's devices.

It is ``epitomic/tuning.json`` in the user's cache (``$XDG_CACHE_HOME`` or ``~/.cache``), or the file that
``EPITOMIC_TUNING`` names. You can delete it at any time. If the file cannot be read, or another program wrote it, it is
left as it is and ignored, with one warning. Entries are used only for the same device and the same versions.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import os
import warnings
from pathlib import Path
from typing import Any

import torch

from epitomic._version import __version__

VARIABLE = "EPITOMIC_TUNING"
FORMAT = "epitomic tuning 1"


class TuningFile:
    """Reads and writes the file, and keeps its entries in memory."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.entries: dict[str, Any] = {}  # device -> "milliseconds" or "differences" -> key -> value
        self.usable = True

    def times(self, device: torch.device, shape: str) -> dict[str, float]:
        """Returns the milliseconds of each algorithm for a shape; infinity for an algorithm that failed."""
        known = self._section(device, "milliseconds").get(shape, {})
        if not isinstance(known, dict):
            return {}
        return {k: math.inf if v is None else v for k, v in known.items() if v is None or isinstance(v, int | float)}

    def keep_times(self, device: torch.device, shape: str, milliseconds: dict[str, float]) -> None:
        """Keeps the times of a shape."""
        rounded = {k: None if math.isinf(v) else round(v, 4) for k, v in milliseconds.items()}
        self._keep(device, "milliseconds", shape, rounded)

    def verdict(self, device: torch.device, algorithm: str, kind: str) -> str | None:
        """Returns how an algorithm differed from ``"direct"``: "" if it did not, None if they were not compared."""
        found = self._section(device, "differences").get(f"{algorithm}: {kind}")
        return found if isinstance(found, str) else None

    def keep_verdict(self, device: torch.device, algorithm: str, kind: str, differs: str) -> None:
        """Keeps how an algorithm differed from ``"direct"``; "" if it did not."""
        self._keep(device, "differences", f"{algorithm}: {kind}", differs)

    def _section(self, device: torch.device, name: str) -> dict[str, Any]:
        if self.path != tuning_path():
            self._read()
        entries = self.entries.get(device_key(device), {})
        section = entries.get(name, {}) if isinstance(entries, dict) else {}
        return section if isinstance(section, dict) else {}

    def _keep(self, device: torch.device, name: str, key: str, value: Any) -> None:
        from epitomic.support.errors import UserError
        from epitomic.support.files import write_json

        self._read()  # what other processes have added since
        section = self.entries.setdefault(device_key(device), {}).setdefault(name, {})
        section[key] = value
        if not self.usable or self.path is None:
            return
        try:
            write_json(self.path, {"format": FORMAT, "devices": self.entries})
        except UserError as error:
            self._give_up(str(error))

    def _read(self) -> None:
        """Reads the file into memory, and replaces what was read from it before."""
        from epitomic.support.errors import UserError
        from epitomic.support.files import read_json

        path = tuning_path()
        if path != self.path:
            self.path, self.entries, self.usable = path, {}, True
        if not self.usable or not path.exists():
            return
        try:
            contents = read_json(path)
        except UserError as error:
            return self._give_up(str(error))
        devices: Any = contents.get("devices")
        if contents.get("format") != FORMAT or not _is_nested(devices):
            return self._give_up(f"{path} is not of the form {FORMAT!r}")
        self.entries = devices

    def _give_up(self, reason: str) -> None:
        self.usable = False
        warnings.warn(
            f"{reason}. It is left as it is, and nothing is remembered; delete it, or name another file by {VARIABLE}",
            stacklevel=2,
        )


TUNING = TuningFile()


def tuning_path() -> Path:
    """Returns the path of the file, which need not exist."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "epitomic" / "tuning.json"


def device_key(device: torch.device) -> str:
    """Names a device and the versions that its timings depend on."""
    from epitomic.support.devices import device_name

    return ", ".join((device_name(device), *_conditions(device)))


def _conditions(device: torch.device) -> list[str]:
    threads = [f"{torch.get_num_threads()} threads"] if device.type == "cpu" else []
    return [*threads, *_versions()]


@functools.cache
def _versions() -> tuple[str, ...]:
    versions = [f"epitomic {__version__}", f"torch {torch.__version__}"]
    try:
        versions.append(f"triton {importlib.metadata.version('triton')}")
    except importlib.metadata.PackageNotFoundError:
        versions.append("no triton")
    return tuple(versions)


def _is_nested(devices: object) -> bool:
    """Whether these are entries as we write them: device -> name -> key -> value."""
    return isinstance(devices, dict) and all(
        isinstance(sections, dict) and all(isinstance(section, dict) for section in sections.values())
        for sections in devices.values()
    )
