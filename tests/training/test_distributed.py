"""The same global batch on one process and on two gives the same result, to rounding."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import SHORT, command, run

ONE_EPOCH = (*SHORT[:4], "1", *SHORT[5:], "--ema", "0")  # `--epochs 1`; dropout and augmentation are on


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model.safetensors")


def assert_close(one: Path, two: Path) -> None:
    a, b = weights(one), weights(two)
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("single") / "run"
    finished = run(out, recipe=ONE_EPOCH)
    assert finished.returncode == 0, finished.stderr
    return out


def test_two_processes(single: Path, tmp_path: Path) -> None:
    words = command(tmp_path / "run", "--devices", "2", recipe=ONE_EPOCH)
    finished = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("test error") == 1
    assert_close(single, tmp_path / "run")


def test_accumulation(single: Path, tmp_path: Path) -> None:
    finished = run(tmp_path / "run", "--accumulate", "4", recipe=ONE_EPOCH)
    assert finished.returncode == 0, finished.stderr
    assert_close(single, tmp_path / "run")


def test_torchrun(single: Path, tmp_path: Path) -> None:
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "epitomic",
    ]
    words = ["train", *ONE_EPOCH, "--no-report", "--out", str(tmp_path / "run")]
    finished = subprocess.run([*launcher, *words], capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
    assert_close(single, tmp_path / "run")
