"""What all commands have in common: spelling, limits, help, and what is not installed."""

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from epitomic.cli import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train digits --threads 0", "--threads must be at least 1, got 0"),
        ("train digits --threads two", "--threads must be a whole number, got 'two'"),
        ("train digits --seed 99999999999999999999", "--seed must be at least 0 and below 9.22337e+18"),
        ("train digits --batchsize 3", "unknown option '--batchsize': did you mean '--batch_size'"),
        ("train digits --lr 3", "unknown option '--lr': did you mean '--optimizer.lr'?"),
        (
            "train digits --flip 1",
            "unknown option '--flip': did you mean '--augmentation.flip' or",
        ),
        ("train digits --save-every -1", "--save-every must be at least 0 seconds, got -1"),
        ("train digits extra", "one argument too many: 'extra'; `epitomic train --help`"),
        ("evaluate runs/digits --workers -1", "--workers must be at least 0, got -1"),
        ("bench --repetitions 0", "--repetitions must be at least 1, got 0"),
        ("models --image-size", "--image-size expected one argument"),
    ],
)
def test_one_line_says_what_is_wrong(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"epitomic: {says}")
    assert error.count("\n") == 1


def test_dashes_and_underscores_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--out", str(tmp_path / "run"), "--data_dir", str(tmp_path), "--batch-size=0"]
    assert main(["train", "digits", *options]) == 2
    assert "--batch_size must be at least 1, got 0" in capsys.readouterr().err


def test_help_names_the_choices_and_no_empty_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "linear, " in shown  # a schedule
    assert "between checkpoints (default: 60.0)" in shown
    assert "default: None" not in shown
    assert "default: False" not in shown
    with pytest.raises(SystemExit):
        main(["features", "--help"])
    assert "(default: 0)" in capsys.readouterr().out  # of the seed: zero says something


def test_what_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def no_fabric(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "lightning_fabric":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **more)

    for name in ("loop", "setup"):
        monkeypatch.delitem(sys.modules, f"epitomic.training.{name}", raising=False)
    monkeypatch.setattr(builtins, "__import__", no_fabric)
    assert main(["train", "digits", "--out", str(tmp_path / "run")]) == 2
    assert "this needs lightning_fabric: pip install 'epitomic[train]'" in capsys.readouterr().err


def test_networks_that_an_image_size_does_not_fit_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--image-size", "64"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "1 x 64 x 64" in rows["epitomic_small"]
    assert "image_size of alexnet networks must be at least" in rows["alexnet"]
    assert main(["models", "alexnet", "--image-size", "64"]) == 2
