"""What machine and what code this is, for the record of a measurement or a training."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of this package, with a plus if it was changed since; None where no repository holds it.

    The package alone, and not the tree around it: a table that is being made writes to ``results/``, run by run.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        if not git("ls-files", "__init__.py"):  # installed somewhere below a user's own repository
            return None
        return git("rev-parse", "HEAD") + "+" * bool(git("status", "--porcelain", "."))
    except (OSError, subprocess.SubprocessError):
        return None
