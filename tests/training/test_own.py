"""Trainings on a user's own images, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epitomic.cli import main
from tests.own_images import make_odd, make_own
from tests.training.conftest import run
from tests.training.test_trainer import assert_same

QUICK = ("--epochs", "2", "--threads", "1", "--workers", "0", "--width", "0.25", "--batch-size", "8", "--from", "none")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_folder_with_every_oddity_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = make_odd(tmp_path / "pictures")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "pictures/", *QUICK]) == 0
    told = capsys.readouterr().out
    assert "pictures: 2 classes;" in told
    out = tmp_path / "runs" / "pictures"
    assert (out / "report.html").is_file()
    results, recipe = (json.loads((out / name).read_text()) for name in ("results.json", "recipe.json"))
    tested = {name: row["images"] for name, row in results["test"]["classes"].items()}
    assert set(tested) == set(counts)
    assert sum(tested.values()) == results["test"]["images"]
    assert results["bad_images"] == {}
    assert f"{results['test']['images']} to test on" in told
    assert recipe["model"]["name"] == "epitomic_resnet"
    # the other commands know the images, the classes and the preprocessing
    assert main(["evaluate", str(out)]) == 0
    assert json.loads((out / "evaluation.json").read_text())["confusion"] == results["test"]["confusion"]
    capsys.readouterr()
    assert main(["predict", str(out), str(tmp_path / "pictures" / "ant" / "000.png"), "--format", "json"]) == 0
    assert {top["class"] for top in json.loads(capsys.readouterr().out)["top"]} == set(counts)


def test_small_grey_images_take_a_small_network(tmp_path: Path) -> None:
    from PIL import Image

    root = make_own(tmp_path / "own", 20, side=20)
    for path in root.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    finished = run(tmp_path / "run", recipe=(str(root), *QUICK))
    assert finished.returncode == 0, finished.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["model"], config["in_channels"], config["image_size"]) == ("epitomic_small", 1, 20)


def test_resuming_finds_the_images_and_the_same_bits(tmp_path: Path) -> None:
    root = make_own(tmp_path / "own", 20)
    straight, out = tmp_path / "straight", tmp_path / "run"
    assert run(straight, recipe=(str(root), *QUICK)).returncode == 0
    first = run(out, recipe=(str(root), *QUICK, "--no-test"))
    assert first.returncode == 0, first.stderr
    (out / "results.json").unlink()
    newest = max((out / "checkpoints").iterdir())
    newest.unlink()  # as if it had been killed in the second epoch
    resumed = run(out, "--resume", recipe=("--threads", "1"))
    assert resumed.returncode == 0, resumed.stderr
    assert_same(straight, out)
    picture = root / "ant" / "003.png"
    picture.write_bytes(picture.read_bytes() + b" ")
    (out / "results.json").unlink()
    assert "made with other images" in run_error(out, "--resume")


def run_error(out: Path, *options: str) -> str:
    finished = run(out, *options, recipe=())
    assert finished.returncode == 2
    return finished.stderr


@pytest.mark.parametrize("word", ["cifa10", "no/such/folder/here"])
def test_what_is_no_folder(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    finished = run(tmp_path / "run", recipe=(word,))
    assert finished.returncode == 2
    assert finished.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
