"""kill -9 at random moments, resumed each time, ends in the same bits as a run that was left alone."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.training.conftest import command, run
from tests.training.test_trainer import assert_same


def crash_until_done(out: Path, kills: int, seed: int, *options: str, devices: int = 1) -> int:
    """Starts, kills and resumes; returns the number of kills. Each life may be a little longer than the last."""
    chance = random.Random(seed)
    words = command(out, "--resume", "--save-every", "0.05", "--devices", str(devices), *options)
    for number in range(kills):
        known = set(out.glob("checkpoints/*.safetensors"))
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        # Wait for a first new checkpoint, so that there is progress, then for a random moment: most of it within saves.
        while process.poll() is None and set(out.glob("checkpoints/*.safetensors")) == known:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.15))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.wait() == 0:
            return number
    return kills


def test_three_kills(straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert crash_until_done(out, 3, seed=0) >= 2
    finished = run(out, "--resume")
    assert finished.returncode == 0, finished.stderr
    assert_same(straight, out)


@pytest.mark.long
def test_twenty_kills(tmp_path: Path) -> None:
    straight, out = tmp_path / "straight", tmp_path / "run"
    options = ("--epochs", "8")
    assert run(straight, *options).returncode == 0
    assert crash_until_done(out, 20, 1, *options) == 20
    assert run(out, "--resume", *options).returncode == 0
    assert_same(straight, out)


@pytest.mark.long
@pytest.mark.parametrize("batch_norm", ["false", "true"])
def test_twenty_kills_of_two_processes(batch_norm: str, tmp_path: Path) -> None:
    straight, out = tmp_path / "straight", tmp_path / "run"
    options = ("--epochs", "8", "--model.batch_norm", batch_norm)
    subprocess.run(command(straight, "--devices", "2", *options), check=True, capture_output=True)
    assert crash_until_done(out, 20, 2, *options, devices=2) == 20
    subprocess.run(command(out, "--resume", "--devices", "2", *options), check=True, capture_output=True)
    assert_same(straight, out)
