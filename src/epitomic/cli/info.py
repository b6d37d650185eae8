"""Versions, processor, and which kernels are in use here and why not the others."""

from __future__ import annotations

import argparse
import os
import platform

import torch

from epitomic._version import __version__
from epitomic.ops.library import NATIVE


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def run(args: argparse.Namespace) -> int:
    """Prints what a bug report should have in it."""
    if NATIVE.library is None:
        kernel = f"no: {NATIVE.reason}"
    else:
        kernel = f"yes, for CPU float32, as {NATIVE.target} ({NATIVE.reason})"
    rows = {
        "epitomic": __version__,
        "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "processor": f"{torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores",
        "native": kernel,
        "winograd": "yes, for CPU float64" + ("" if NATIVE.library else " and float32"),
        "direct": "yes, for all else: other devices and dtypes, more than 8 points per axis, export",
    }
    for name, value in rows.items():
        print(f"{name:<12}{value}")
    return 0
