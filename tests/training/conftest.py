"""A short training on the embedded digits, through the command line, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

SHORT = ("digits", "--model.width", "0.25", "--epochs", "3", "--batch_size", "32", "--threads", "1")


def command(out: Path, *options: str, recipe: Sequence[str] = SHORT) -> list[str]:
    return [sys.executable, "-m", "epitomic", "train", *recipe, "--out", str(out), *options]


def run(out: Path, *options: str, recipe: Sequence[str] = SHORT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(out, *options, recipe=recipe), capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run."""
    out = tmp_path_factory.mktemp("straight") / "run"
    finished = run(out)
    assert finished.returncode == 0, finished.stderr
    return out
