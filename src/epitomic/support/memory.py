"""The memory of this process, as Linux reports it in /proc."""

from __future__ import annotations

import os
from pathlib import Path

PEAK = Path("/proc/self/clear_refs")


def knows_peak() -> bool:
    """Whether the system reports the peak of the memory, and can forget it (Linux)."""
    return os.access(PEAK, os.W_OK)


def forget_peak() -> None:
    """Lets the peak start again from the memory that is held now."""
    PEAK.write_text("5", encoding="utf-8")


def resident_bytes() -> int:
    """Returns the bytes that are in memory now."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """Returns the most bytes that were in memory at once."""
    return _status("VmHWM")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))
