"""The algorithms that a training takes are kept in its folder, and a resumed run takes them again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from epitomic.cli import main
from epitomic.ops import measuring
from epitomic.ops.selection import SELECTION
from epitomic.support.files import read_sealed
from tests.training.conftest import run
from tests.training.test_trainer import assert_same


@pytest.fixture(autouse=True)
def tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tuning.json"
    monkeypatch.setenv("EPITOMIC_TUNING", str(path))
    return path


def pretend(monkeypatch: pytest.MonkeyPatch, fastest: str) -> list[str]:
    """Makes one algorithm the fastest, and returns the shapes of the contests."""
    contests: list[str] = []

    def time_step(call: Any, algorithms: list[str]) -> dict[str, float]:
        contests.append(str(tuple(call.input.shape)))
        return {name: 1.0 if name == fastest else 2.0 for name in algorithms}

    monkeypatch.setattr(measuring, "time_step", time_step)
    return contests


def test_every_run_keeps_its_choices(straight: Path) -> None:
    choices = read_sealed(straight / "choices.json")
    assert all("on cpu" in shape for shape in choices)
    assert any("gradients of input and weight and bias" in shape for shape in choices)  # of training
    assert any("no gradients" in shape for shape in choices)  # of validation


def test_a_resumed_run_takes_the_choices_again(tmp_path: Path, tuning: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement would now come out differently. The run still gives the same bits."""
    contests = pretend(monkeypatch, "one_convolution")
    assert run(tmp_path / "straight", "--quiet", "--benchmark").returncode == 0
    assert contests
    kept = read_sealed(tmp_path / "straight" / "choices.json")
    assert "one_convolution" in kept.values()
    assert not SELECTION.benchmark

    again = tmp_path / "again"
    shutil.copytree(tmp_path / "straight", again)
    (again / "results.json").unlink()
    max((again / "checkpoints").iterdir()).unlink()  # of the end: it goes on from the one before
    tuning.unlink()
    contests = pretend(monkeypatch, "direct")
    assert run(again, "--resume", "--quiet", "--benchmark").returncode == 0
    assert not contests
    assert_same(tmp_path / "straight", again)
    assert read_sealed(again / "choices.json") == kept


def test_tune_times_what_a_training_asks_for(
    straight: Path, tuning: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, "direct")
    assert main(["tune", str(straight), "--device", "cpu"]) == 0
    (device,) = json.loads(tuning.read_text())["devices"].values()
    choices = read_sealed(straight / "choices.json")
    assert {shape for shape in choices if "no gradients" not in shape} == set(device["milliseconds"])


@pytest.mark.parametrize(
    "contents", ["{", '{"a shape": 3}', '{"a shape": "direct"}', '{"a shape": "direct", "sha2": "66"}']
)
def test_choices_that_cannot_be_read_are_named(
    contents: str, straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(straight, tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    (tmp_path / "run" / "choices.json").write_text(contents)
    assert main(["train", "--resume", "--quiet", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "choices.json" in error
    assert "remove it to choose" in error
