"""A short training on the embedded digits, through the command line."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from epitomic.cli import main

SHORT = ("digits", "--model.width", "0.25", "--epochs", "3", "--batch_size", "32", "--threads", "1")


@dataclass(frozen=True)
class Finished:
    returncode: int
    stdout: str
    stderr: str


def command(out: Path, *options: str, recipe: Sequence[str] = SHORT) -> list[str]:
    """To run in a process of its own."""
    return [sys.executable, "-m", "epitomic", "train", *recipe, "--no-report", "--out", str(out), *options]


def run(out: Path, *options: str, recipe: Sequence[str] = SHORT) -> Finished:
    """The same in this process, which saves the seconds that imports take."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        status = main(command(out, *options, recipe=recipe)[3:])
    return Finished(status, stdout.getvalue(), stderr.getvalue())


@pytest.fixture(autouse=True, scope="package")
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run."""
    out = tmp_path_factory.mktemp("straight") / "run"
    finished = run(out)
    assert finished.returncode == 0, finished.stderr
    return out
