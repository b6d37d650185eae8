"""Whole trainings through the command line."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from epitomic.cli import main
from epitomic.data.feed import Part
from epitomic.data.small.feed import MemoryFeed
from epitomic.data.small.splits import ImageSet, Split
from epitomic.models import from_pretrained
from epitomic.models.whitening import Whitening
from epitomic.support.errors import UserError
from epitomic.support.files import read_sealed
from epitomic.support.rng import generator
from epitomic.training.recipes import RECIPES
from epitomic.training.trainer import Trainer
from tests.training.conftest import command, run


def test_the_folder_has_everything(straight: Path) -> None:
    names = {p.name for p in straight.iterdir()}
    expected = {
        "recipe.json",
        "run.json",
        "choices.json",
        "metrics.csv",
        "model.safetensors",
        "config.json",
        "results.json",
    }
    assert names == expected | {"checkpoints", "tensorboard"}
    rows = list(csv.DictReader((straight / "metrics.csv").open()))
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    facts = read_sealed(straight / "run.json")
    assert facts["command"].split()[0] == "epitomic"  # and what this process was given
    assert {"commit", "versions", "machine", "seed", "wall_seconds", "started"} <= facts.keys()
    assert facts["machine"]["vectors"] == torch.backends.cpu.get_cpu_capability()
    results = read_sealed(straight / "results.json")
    assert results["test"]["images"] == 360
    assert results["test"]["top1"] == pytest.approx(1 - results["test"]["error"])
    assert results["parameters"] == sum(p.numel() for p in from_pretrained(straight).parameters())
    assert list((straight / "tensorboard").iterdir())
    assert len(list((straight / "checkpoints").iterdir())) == 2


def test_evaluate_repeats_the_result(straight: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(straight)]) == 0
    assert "top-5" in capsys.readouterr().out
    results = read_sealed(straight / "results.json")["test"]
    again = json.loads((straight / "evaluation.json").read_text())
    (straight / "evaluation.json").unlink()
    assert again["error"] == results["error"]
    assert sum(map(sum, again["confusion"])) == 360


def test_a_trial_does_not_look_at_the_test_images(
    straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main([word for word in command(folder, "--no-test")[3:] if word != "--no-report"]) == 0
    said = capsys.readouterr().out
    assert "test error" not in said
    assert "validation error" in said
    assert f"look at the test images with: epitomic evaluate {folder}" in said
    assert not (folder / "report.html").exists()
    trial, whole = (read_sealed(f / "results.json") for f in (folder, straight))
    assert "test" not in trial
    assert trial["validation_error"] == whole["validation_error"]
    assert main(["curves", str(folder), "--out", str(tmp_path / "curves")]) == 0
    assert main(["robustness", str(folder), "--shifts", "1", "--images", "10", "--out", str(tmp_path / "r")]) == 0
    assert main(["report", str(folder), "--no-robustness"]) == 0
    assert "did not use the test images (--no-test). This page does." in (folder / "report.html").read_text()
    assert run(folder, "--resume").returncode == 0  # the settings are chosen: now it looks
    assert read_sealed(folder / "results.json")["test"] == whole["test"]


def test_a_finished_run_is_tested_again_with_other_views(straight: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(straight, folder)
    before = read_sealed(folder / "results.json")
    weights = (folder / "model.safetensors").read_bytes()
    shutil.rmtree(folder / "checkpoints")  # people make room
    assert run(folder, "--resume", "--data.views", "nudged").returncode == 0
    after = read_sealed(folder / "results.json")
    assert after.pop("plain") == before["test"]
    assert after.pop("test")["loss"] != before.pop("test")["loss"]
    assert after == before  # the training was not touched, nor its time
    assert (folder / "model.safetensors").read_bytes() == weights
    assert read_sealed(folder / "recipe.json")["data"]["views"] == "nudged"
    assert read_sealed(folder / "config.json")["views"] == "nudged"
    (session,) = read_sealed(folder / "run.json")["sessions"]
    assert session["first_step"] > 0
    refused = run(folder, "--resume", "--data.views", "one", "--optimizer.lr", "0.3")
    assert "--optimizer.lr 0.3 where it has 0.05" in refused.stderr


def test_a_test_that_was_cut_off_is_made_again(straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results of an earlier test, with other views, are not taken for it."""
    folder = tmp_path / "run"
    shutil.copytree(straight, folder)
    again = ["train", "--resume", "--data.views", "nudged", "--no-report", "--quiet", "--out", str(folder)]

    def cut_off(*_: object) -> None:
        raise UserError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr("epitomic.training.experiment.score", cut_off)
        assert main(again) == 2
    assert main(again) == 0
    assert "plain" in read_sealed(folder / "results.json")


def test_a_finished_run_is_not_tested_on_other_images(
    straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(straight, folder)
    facts = read_sealed(folder / "run.json")
    (folder / "run.json").write_text(json.dumps({**facts, "images": "others"}))
    assert main(["train", "--resume", "--data.views", "nudged", "--no-report", "--out", str(folder)]) == 2
    assert f"{folder} was made with other images" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_bits(straight: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "run", "--quiet").returncode == 0
    assert_same(straight, tmp_path / "run")


def assert_same(one: Path, two: Path) -> None:
    """The same weights and metrics, to the bit."""
    for name in ("model.safetensors", "metrics.csv", "config.json", "recipe.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    last = [load_file(sorted((folder / "checkpoints").iterdir())[-1]) for folder in (one, two)]
    assert last[0].keys() == last[1].keys()
    assert all(last[0][name].equal(last[1][name]) for name in last[0])
    tests = [read_sealed(folder / "results.json")["test"] for folder in (one, two)]
    assert tests[0] == tests[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_how_to_resume(number: int, straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(command(out, "--no-test"), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not list(out.glob("checkpoints/*.safetensors")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    if process.returncode != 0:  # it was not over before the signal came
        assert process.returncode == 128 + number
        assert f"epitomic train --resume --out {out} --threads 1 --no-test\n" in errors
        assert "Traceback" not in errors
        first = read_sealed(out / "run.json")
        assert run(out, "--resume", recipe=["--threads", "1"]).returncode == 0
        facts = read_sealed(out / "run.json")
        assert {name: facts[name] for name in first} == first
        (session,) = facts["sessions"]
        assert session.keys() == {"command", "commit", "versions", "machine", "processes", "first_step", "started"}
        assert session["first_step"] > first["first_step"] == 0
    assert_same(straight, out)


def test_a_signal_in_the_last_validation_stops_before_the_test(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it was forgotten, and the training went on to the test and the report."""
    out, validate = tmp_path / "run", Trainer._validate

    def interrupted(trainer: Trainer) -> tuple[float, float, float]:
        if trainer.state.epoch == trainer.recipe.epochs - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return validate(trainer)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_validate", interrupted)
        stopped = run(out)
    assert stopped.returncode == 128 + signal.SIGTERM
    assert f"epitomic train --resume --out {out}" in stopped.stderr
    assert not (out / "results.json").exists()
    assert run(out, "--resume").returncode == 0
    assert_same(straight, out)


def test_a_worker_that_dies_in_a_step_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch raises its error from a signal handler, so at any line of the first process."""

    def killed(*_: object) -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")

    monkeypatch.setattr(Trainer, "_train_step", killed)
    finished = run(tmp_path / "run")
    assert finished.returncode == 2
    assert finished.stderr.splitlines()[-1] == (
        "epitomic: a process that reads images has died (DataLoader worker (pid 7) is killed by signal: Killed.): "
        "try fewer --workers"
    )


def test_a_whitening_is_taken_up_again(tmp_path: Path) -> None:
    """The images that it was taken from are not read again: the rest of the run has the same bits."""
    options = ["--model.whiten", "true", "--quiet"]
    assert run(tmp_path / "straight", *options).returncode == 0
    shutil.copytree(tmp_path / "straight", tmp_path / "again")
    (tmp_path / "again" / "results.json").unlink()
    max((tmp_path / "again" / "checkpoints").iterdir()).unlink()  # the last one, so that it goes on from the one before
    assert run(tmp_path / "again", "--resume", *options).returncode == 0
    assert_same(tmp_path / "straight", tmp_path / "again")


def test_resuming_a_finished_run_changes_nothing(straight: Path) -> None:
    (straight / "report.html.0badcafe.tmp").touch()  # of a training that was killed while it wrote its report
    assert run(straight, "--resume").returncode == 0
    assert not list(straight.glob("*.tmp"))
    before = {path: path.stat().st_mtime_ns for path in straight.rglob("*")}
    finished = run(straight, "--resume", recipe=["--threads", "1"])
    assert finished.returncode == 0, finished.stderr
    assert "test error" in finished.stdout
    assert {path: path.stat().st_mtime_ns for path in straight.rglob("*")} == before


def test_the_first_line_says_what_the_run_computes_on(tmp_path: Path) -> None:
    begun = run(tmp_path / "run", "--epochs", "1", "--no-test")
    assert begun.stdout.startswith("training on CPU: " if not torch.cuda.is_available() else "training on ")


def test_a_finished_run_needs_no_checkpoint(straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(straight, out)
    for path in (out / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    finished = run(out, "--resume")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "test error" in finished.stdout


def test_a_run_without_a_checkpoint_is_not_to_be_resumed(
    straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    shutil.copy(straight / "recipe.json", tmp_path / "run")  # all that is left of a training that failed at its start
    assert main(["train", "digits", "--out", str(tmp_path / "run")]) == 2
    assert "run is not empty: the run in it has no checkpoint yet: if it is not running" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["train", "digits", "--out", str(tmp_path / "file")]) == 2
    assert "file is a file: name another folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train digits --epochs 4 --resume --out {run}", "--epochs 4 where it has 3"),
        ("train digits --out {run}", "is not empty: add --resume"),
        (
            "train cifar10 --model epitomic_fast --out {new}",
            "add --model.dropout none --model.conv_dropout none --model.batch_norm none --model.whiten none",
        ),
        ("train --resume --out {new}", "nothing to resume"),
        ("train", "which recipe?"),
        ("train digitss --out {new}", "did you mean 'digits'?"),
        ("train digits --out {new} --modle x", "did you mean '--model'"),
        ("train digits --out {new} --devices 3 --batch_size 32", "multiple of 3"),
        ("train digits --out {new} --devices 0", "--devices"),
        ("train digits --out {new} --devices x", "--devices must be a whole number, got 'x'"),
        ("train digits --out {new} --accelerator cuda", "--accelerator cuda"),
        ("train digits --out {new} --batch_size 5000", "larger than the training set"),
        ("train digits --out {new} --data.validation 5000", "validation set"),
        ("train mnist --out {new} --data-dir {new}", "train-images-idx3-ubyte.gz"),
        ("train digits --out {new} --model alexnet", "image_size of alexnet"),
        ("train digits --out {new} --model alexnet --model.batch_norm true", "add --model.batch_norm none"),
        ("train digits --out {new} --model epitomic", "image_size of epitomic"),
        ("evaluate {new}", "no folder"),
        ("evaluate {run} --data mnits", "did you mean 'mnist'"),
        ("models epitomik", "did you mean 'epitomic"),
        ("trian", "did you mean 'train'"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    words: str, message: str, straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(p for p in straight.rglob("*"))
    full = words.format(run=straight, new=tmp_path / "new").split()
    if full[:3] == ["train", "digits", "--epochs"]:
        full[2:2] = ["--model.width", "0.25", "--batch_size", "32"]
    assert main(full) == 2
    text = capsys.readouterr().err
    assert message in text
    assert text.count("\n") == 1
    assert sorted(p for p in straight.rglob("*")) == before


def test_a_checkpoint_of_another_run_is_refused(
    straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "checkpoints").symlink_to(straight / "checkpoints")
    recipe = read_sealed(straight / "recipe.json")
    recipe["model"]["name"] = "maxpool_small"
    (out / "recipe.json").write_text(json.dumps(recipe))
    assert main(["train", "--resume", "--out", str(out)]) == 2
    assert "--model.name maxpool_small where it has epitomic_small" in capsys.readouterr().err


def test_a_loss_that_is_not_finite_stops_with_the_facts(tmp_path: Path) -> None:
    finished = run(tmp_path / "run", "--optimizer.lr", "1e6", "--schedule.warmup", "0")
    assert finished.returncode == 2
    assert "not finite at step" in finished.stderr
    assert "learning rate" in finished.stderr
    assert "checkpoint" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    ("options", "what"), [("--batch_size 1200", "validation loss"), ("--batch_size 600 --save-every 0", "network")]
)
def test_weights_that_are_not_finite_are_not_saved(options: str, what: str, tmp_path: Path) -> None:
    """The first step breaks them, but its loss, computed before, is finite: the epoch's end or a save must notice."""
    finished = run(tmp_path / "run", "--optimizer.lr", "1e300", "--schedule.warmup", "0", *options.split())
    assert finished.returncode == 2
    assert f"the {what} is not finite at step 1 (epoch 1) with learning rate 1e+300" in finished.stderr
    assert "there is no checkpoint yet" in finished.stderr
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_a_damaged_newest_checkpoint_falls_back(straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(straight, out)
    newest = sorted((out / "checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-100])
    (out / "results.json").unlink()
    finished = run(out, "--resume", recipe=["--threads", "1"])
    assert finished.returncode == 0, finished.stderr
    assert "damaged" in finished.stderr
    (out / "checkpoints" / f"{newest.name}.damaged").unlink()
    assert_same(straight, out)


def test_models_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    assert "84,184,456" in text
    assert main(["models", "epitomic_small"]) == 0
    assert "features.layer1.conv" in capsys.readouterr().out


def test_a_network_that_fits_itself_to_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = generator("images")
    images = torch.randint(0, 256, (96, 3, 16, 16), generator=draws, dtype=torch.uint8)
    split = Split(images, torch.arange(96) % 10)
    made = ImageSet("cifar10", tuple("abcdefghij"), split, split)
    for module in ("training.setup", "data.test_images"):
        monkeypatch.setattr(f"epitomic.{module}.load_set", lambda *_: made)
    options = "--model.width 0.125 --epochs 1 --batch_size 32 --quiet"
    options += " --data.validation 32"
    assert run(tmp_path / "run", *options.split(), recipe=("cifar10_fast",)).returncode == 0
    results = read_sealed(tmp_path / "run" / "results.json")
    assert results["test"]["images"] == results["plain"]["images"] == 96
    # The first global batch, not the initial weights, has made the whitening; learning has not changed it.
    feed = MemoryFeed(made, 32, 32, RECIPES["cifar10_fast"].augmentation, 0)
    first, _ = next(feed.stream(0, 0, Part()))
    expected = Whitening(3)
    expected.fit(first)
    kept = load_file(tmp_path / "run" / "model.safetensors")["whitening.weight"]
    assert torch.equal(kept, expected.weight)


def test_the_last_epoch_is_kept_where_the_recipe_says_so(straight: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "run", "--keep", "last", "--quiet").returncode == 0
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").open()))
    results = read_sealed(tmp_path / "run" / "results.json")
    assert results["best_epoch"] == 2
    assert results["validation_error"] == float(rows[-1]["val_error"])
    assert [row["best_epoch"] for row in rows] == ["0", "1", "2"]
    averages = load_file(sorted((tmp_path / "run" / "checkpoints").iterdir())[-1])
    kept = load_file(tmp_path / "run" / "model.safetensors")
    assert torch.equal(kept["out.weight"], averages["average.out.weight"])
