"""The time since a command's start, imports included."""

from __future__ import annotations

import time
from pathlib import Path

_began = time.monotonic()


def begin(*, process: bool) -> None:
    """Sets the start: that of this process, or now if a command runs inside another program."""
    global _began
    _began = time.monotonic() - (_process_age() if process else 0.0)


def elapsed() -> float:
    """Returns the seconds since the start."""
    return time.monotonic() - _began


def _process_age() -> float:
    """Returns the seconds since this process was started; without /proc, the processor time that it has used."""
    try:
        ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
        import os

        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return time.process_time()
