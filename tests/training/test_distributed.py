"""The same global batch on one process and on two gives the same result, to rounding."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from epitomic.data.feed import Part
from epitomic.evaluation import score
from epitomic.models import from_pretrained
from epitomic.support.errors import UserError
from epitomic.training.run_folder import RunFolder
from epitomic.training.setup import Settings, open_feed
from tests.training.conftest import SHORT, command, run
from tests.training.test_crash import crash_until_done
from tests.training.test_trainer import assert_same

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


def test_batch_norms_are_those_of_the_first_process(tmp_path: Path) -> None:
    """Every process validates the network that is kept, and a resumed run goes on with that one."""
    options = ("--devices", "2", "--model.batch_norm", "true", "--epochs", "2", "--keep", "last")
    straight, out = tmp_path / "straight", tmp_path / "run"
    subprocess.run(command(straight, *options), capture_output=True, timeout=300, check=True)
    recipe = RunFolder(straight).read_recipe()
    validation = open_feed(recipe, Settings()).validation(Part())
    assert score(from_pretrained(straight), validation).loss == pytest.approx(last_row(straight)["val_loss"], rel=1e-6)
    assert crash_until_done(out, 1, 0, *options[2:], devices=2) == 1
    subprocess.run(command(out, "--resume", *options), capture_output=True, timeout=300, check=True)
    assert_same(straight, out)


def last_row(out: Path) -> dict[str, float]:
    row = list(csv.DictReader((out / "metrics.csv").open()))[-1]
    return {name: float(value) for name, value in row.items()}


TOLD = "epitomic: process 1: no room\n"


@pytest.mark.parametrize(("begun", "local", "told"), [(True, "1", TOLD), (False, "1", ""), (False, "0", TOLD)])
def test_what_another_process_or_machine_alone_meets_is_told(
    begun: bool, local: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise UserError("no room")

    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", local)
    monkeypatch.setattr("epitomic.training.experiment.train", fail)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: begun)
    finished = run(tmp_path / "run")
    assert (finished.returncode, finished.stderr) == (2, told)


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
