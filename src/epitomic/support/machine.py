"""Facts about the machine and the code: the record that goes with a training or a measurement."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from epitomic._version import __version__

PACKAGES = ("numpy", "lightning-fabric", "safetensors", "scikit-learn", "pillow", "datasets")


def gather_facts() -> dict[str, Any]:
    """Gathers the command, the commit, the versions, the machine and the time, as JSON can hold them."""
    return {
        "command": shlex.join(["epitomic", *sys.argv[1:]]),
        "commit": commit(),
        "versions": _versions(),
        "machine": {
            "system": platform.platform(),
            "processor": processor(),
            "vectors": torch.backends.cpu.get_cpu_capability(),  # a virtual machine may hide the processor's name
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "started": timestamp(),
    }


def timing_facts() -> dict[str, str]:
    """Returns the facts that stand beside each timing in a CSV file."""
    facts = gather_facts()
    machine = facts["machine"]
    return {
        "cpu": machine["processor"],
        "cores": str(machine["cores"]),
        "threads": str(machine["threads"]),
        "capability": machine["vectors"],
        "os": platform.system(),
        "python": facts["versions"]["python"],
        "torch": torch.__version__,
        "epitomic": __version__,
        "commit": facts["commit"] or "",
    }


def describe_facts(facts: Sequence[dict[str, Any]]) -> str:
    """Names the processors and versions of several runs, each once."""

    def machine(cores: Any = "?", processor: Any = "unknown", vectors: Any = "", **_: object) -> str:
        return f"{cores} cores of {processor}" + (f" with {vectors}" if vectors else "")  # old records lack `vectors`

    def versions(torch: str = "?", python: str = "?", **_: object) -> str:
        return f"torch {torch}, Python {python}"

    machines = {machine(**one.get("machine", {})) for one in facts}
    used = {versions(**one.get("versions", {})) for one in facts}
    return "; ".join((*sorted(machines), *sorted(used)))


def short_commit(facts: dict[str, Any]) -> str:
    """Returns the first eight digits of the recorded commit, with its plus sign if the code had been changed."""
    commit = facts.get("commit") or ""
    return commit[:8] + "+" * commit.endswith("+")


def timestamp() -> str:
    """Returns the local time with its zone, such as ``2025-01-31T12:00:00+0000``."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def processor() -> str:
    """Returns the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str | None:
    """Returns the commit of this package, with a plus sign if its code was changed since.

    Only changes inside the package count, because a table that is being made writes to ``results/`` run by run. The
    commit is None if the package does not belong to a repository.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parents[1]), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        if not git("ls-files", "__init__.py"):  # installed below a repository of the user's
            return None
        return git("rev-parse", "HEAD") + "+" * bool(git("status", "--porcelain", "."))
    except (OSError, subprocess.SubprocessError):
        return None


def _versions() -> dict[str, str]:
    """Returns the versions that results depend on. torch names its build, such as +cu130; its metadata may not."""
    versions = {"epitomic": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
