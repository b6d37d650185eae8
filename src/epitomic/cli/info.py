"""Shows versions, the processor, and which kernels are in use here."""

from __future__ import annotations

import argparse
import platform

from epitomic.ops.library import NATIVE
from epitomic.support.machine import timing_facts

# pip keeps every wheel that it builds from an sdist, and would install the one without the kernel again.
BUILD_IT = "to build it: get GCC or Clang, then pip install with --force-reinstall --no-deps --no-cache-dir"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds no options."""


def run(args: argparse.Namespace) -> int:
    """Prints what a bug report should contain."""
    print(facts_table())
    return 0


def facts_table() -> str:
    """Returns versions, processor and kernels, one to a line."""
    facts = timing_facts()
    if NATIVE.library is None:
        kernel = f"no: {NATIVE.reason}"
        if NATIVE.reason.startswith("not built"):
            kernel += f"\n{'':<12}{BUILD_IT}"
    else:
        kernel = f"yes, for CPU float32 and bfloat16, as {NATIVE.target} ({NATIVE.reason})"
    rows = {
        "epitomic": facts["epitomic"],
        "torch": f"{facts['torch']}, {facts['threads']} threads",
        "python": f"{facts['python']} on {facts['os']} {platform.machine()}",
        "processor": f"{facts['capability']}, {facts['cores']} cores",
        "native": kernel,
        "winograd": "yes, for CPU float64" + ("" if NATIVE.library else " and float32"),
        "direct": "yes, for everything else: other devices and dtypes, more than 8 points per axis, export",
    }
    return "\n".join(f"{name:<12}{value}" for name, value in rows.items())
