"""What all commands have in common: spelling, limits, help, and what is not installed."""

import argparse
import builtins
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from epitomic import cli
from epitomic.cli import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train digits --threads 0", "--threads must be at least 1, got 0"),
        ("train digits --threads two", "--threads must be a whole number, got 'two'"),
        ("train digits --seed 99999999999999999999", "--seed must be at least 0 and below 9.22337e+18"),
        ("train digits --batchsize 3", "unknown option '--batchsize': did you mean '--batch-size'"),
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
        (f"train digits --out {300 * 'x'}", f"cannot use {300 * 'x'}: File name too long"),
        (f"train {300 * 'x'}", f"cannot use {300 * 'x'}: File name too long"),
        (f"evaluate {300 * 'x'}", f"cannot use {300 * 'x'}: File name too long"),
    ],
)
def test_one_line_says_what_is_wrong(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"epitomic: {says}")
    assert error.count("\n") == 1


def test_dashes_and_underscores_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--out", str(tmp_path / "run"), "--data_dir", str(tmp_path), "--batch_size=0"]
    assert main(["train", "digits", *options]) == 2
    assert "--batch-size must be at least 1, got 0" in capsys.readouterr().err


def test_help_names_the_choices_and_no_empty_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "linear, " in shown  # a schedule
    assert shown.startswith("usage: epitomic train [RECIPE] [options] Trains")
    assert "--batch-size N" in shown
    assert "--model.conv-dropout X|none" in shown
    others = shown.index("all other settings of the recipe")
    assert shown.index("--model NAME") < others < shown.index("--model.dropout")
    assert "between two checkpoints (default: 60.0)" in shown
    assert "default: None" not in shown
    assert "default: False" not in shown
    with pytest.raises(SystemExit):
        main(["features", "--help"])
    assert "(default: 0)" in capsys.readouterr().out  # of the seed: zero says something


def test_commands_are_listed_by_what_a_person_wants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().out
    titles = ["train and test:", "look:", "deploy:", "reproduce:", "this machine:"]
    assert [line for line in shown.splitlines() if line in titles] == titles
    modules = Path(cli.__file__).parent.glob("*.py")
    assert set(cli.COMMANDS) == {path.stem for path in modules if "\ndef configure(parser" in path.read_text()}


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_describes_every_option(command: str) -> None:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"epitomic.cli.{command}").configure(parser)
    for action in parser._actions:
        assert action.help, action.option_strings
        assert not any("_" in name for name in action.option_strings)
        shown = action.default is not None or action.required or not action.option_strings
        assert shown or "(default: " in action.help, action.option_strings


def test_what_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def no_fabric(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "lightning_fabric":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **more)

    for name in ("experiment", "trainer", "parallel"):
        monkeypatch.delitem(sys.modules, f"epitomic.training.{name}", raising=False)
    monkeypatch.setattr(builtins, "__import__", no_fabric)
    assert main(["train", "digits", "--out", str(tmp_path / "run")]) == 2
    assert "this needs lightning_fabric: pip install 'epitomic[train]'" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["info", "models", "bench --cases x"])
def test_the_commands_about_this_machine_need_torch_alone(words: str) -> None:
    blocked = dict.fromkeys(set(cli.EXTRAS) - {"numpy"})  # torch itself imports numpy where it can
    code = f"import sys; sys.modules.update({blocked}); from epitomic.cli import main; sys.exit(main({words.split()}))"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if words.startswith("bench"):  # its imports are done when it looks at the names
        assert finished.stderr.startswith("epitomic: unknown case 'x'")
    else:
        assert finished.returncode == 0, finished.stderr
