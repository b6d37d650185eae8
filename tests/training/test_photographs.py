"""Trainings on photographs through the command line: the whole path of the paper's main experiment, in small."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from epitomic.cli import main
from epitomic.support.files import read_sealed
from tests.photographs import make_folders
from tests.training.conftest import command, run
from tests.training.test_distributed import assert_close
from tests.training.test_trainer import assert_same

SMALL = (
    *("imagenette", "--model", "maxpool_small", "--width", "0.25", "--photographs.size", "24", "--crop", "20"),
    *("--epochs", "2", "--batch_size", "6", "--threads", "1", "--workers", "1"),
)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain folders under ``in``, and the store made of them."""
    folder = tmp_path_factory.mktemp("data")
    make_folders(folder / "in", train=14, val=5)
    assert main(["prepare", str(folder / "in"), str(folder / "store"), "--size", "24", "--quiet"]) == 0
    return folder


def options(data: Path, kind: str = "store") -> list[str]:
    return [*SMALL, "--data-dir", str(data / kind)]


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("photographs") / "run"
    result = run(out, recipe=options(data))
    assert result.returncode == 0, result.stderr
    assert "10 crops averaged:" in result.stdout
    return out


def test_the_results_are_of_ten_crops_and_the_centre(finished: Path) -> None:
    results = json.loads((finished / "results.json").read_text())
    assert results["test"]["images"] == results["center"]["images"] == 15
    assert results["bad_images"] == {}
    assert results["center"]["error"] == pytest.approx(results["validation_error"])


def test_evaluate_repeats_the_result(finished: Path, data: Path) -> None:
    results = json.loads((finished / "results.json").read_text())
    for crops, key in (("10", "test"), ("1", "center")):
        assert main(["evaluate", str(finished), "--data-dir", str(data / "store"), "--crops", crops]) == 0
        again = json.loads((finished / "evaluation.json").read_text())
        (finished / "evaluation.json").unlink()
        assert again["confusion"] == results[key]["confusion"]
        assert again["crops"] == int(crops)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_number_of_workers_changes_no_bit(workers: str, finished: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(out, "--workers", workers, "--quiet", recipe=options(data)).returncode == 0
    assert_same(finished, out)


def test_plain_folders_train_too(data: Path, tmp_path: Path) -> None:
    result = run(tmp_path / "run", recipe=options(data, "in"))
    assert result.returncode == 0, result.stderr
    assert list((tmp_path / "cache").rglob("statistics/*.json"))


def test_stopped_in_the_middle_of_an_epoch_the_same_bits_follow(finished: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = command(out, "--save-every", "0", recipe=options(data))
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    while not list(out.glob("checkpoints/*.safetensors")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert run(out, "--resume", recipe=options(data)).returncode == 0
    assert_same(finished, out)


def test_two_processes_agree_with_one(data: Path, tmp_path: Path) -> None:
    recipe = [*options(data), "--epochs", "1"]
    assert run(tmp_path / "one", recipe=recipe).returncode == 0
    words = command(tmp_path / "two", "--devices", "2", recipe=recipe)
    result = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    assert_close(tmp_path / "one", tmp_path / "two")


def spoil_image(store: Path, count: int) -> None:
    """Alters a byte of some images."""
    from epitomic.data.photographs.store import StoreImages

    path = store / "train/shard-00000.arrow"
    raw, table = bytearray(path.read_bytes()), StoreImages(store, "train").table
    for index in range(count):
        raw[int(table.offset[index]) + 200] ^= 0xFF
    path.write_bytes(raw)


def test_a_bad_image_is_skipped_counted_and_reported(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(data / "store", tmp_path / "store")
    spoil_image(tmp_path / "store", 2)
    result = run(tmp_path / "stopped", recipe=options(tmp_path))
    assert result.returncode == 2
    assert "1 of 42 images cannot be read, more than 1 %" in result.stderr
    assert "checksum" in result.stderr
    monkeypatch.setattr("epitomic.training.trainer.BAD_SHARE", 0.05)
    result = run(tmp_path / "run", recipe=options(tmp_path))
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("epitomic: skipped ") == 2
    assert len(json.loads((tmp_path / "run/results.json").read_text())["bad_images"]) == 2


def test_resuming_with_other_images_is_refused(finished: Path, data: Path, tmp_path: Path) -> None:
    make_folders(tmp_path / "in", train=3, val=1)
    assert main(["prepare", str(tmp_path / "in"), str(tmp_path / "store"), "--size", "24", "--quiet"]) == 0
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "results.json").unlink()
    result = run(out, "--resume", recipe=options(tmp_path))
    assert result.returncode == 2
    assert "made with other images" in result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train imagenette --data-dir {data}/store --crop 30 --out {new}", "--crop 30 does not fit"),
        (
            "train imagenette --data-dir {data}/store --crop 20 --batch_size 6 --out {new}",
            "image_size of epitomic networks must be",
        ),
        ("train imagenet --data-dir {new} --out {new}2", "no images of imagenet"),
        ("train imagenet --data-dir {data}/store --workers -1 --out {new}", "--workers"),
        ("evaluate {run} --data-dir {new}", "no images of imagenette"),
        ("evaluate {run} --data-dir {data}/store --crops 3", "--crops"),
        ("evaluate {run} --data-dir {data}/store --device nowhere", "cannot use --device nowhere"),
        ("transfer {run} {new}", "no folder"),
        ("transfer {new} {data}/store", "no folder"),
        ("transfer {run} {data}/store --train-per-class 14", "class 'ant' has 14 images"),
        ("transfer {run} {data}/store --kernel rfb", "did you mean 'rbf'"),
        ("transfer {run} {data}/store --features pixel", "did you mean 'pixels'"),
        ("transfer {run} {data}/store --splits 0", "--splits must be at least 1"),
        ("features {run} {data}/store --out {new}.txt", "--out must end in"),
        ("features {run} {data}/store --out {data}/there.npz", "exists already"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    words: str, says: str, finished: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "there.npz").touch()
    assert main(words.format(run=finished, data=data, new=tmp_path / "new").split()) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert (data / "there.npz").stat().st_size == 0


def whole_path(folder: Path, *recipe: str, scale: float, size: str, dim: int) -> None:
    """Prepare, train two steps, resume in between, evaluate ten crops, transfer."""
    source, store, out = make_folders(folder / "in", train=2, val=1, scale=scale), folder / "store", folder / "run"
    assert main(["prepare", str(source), str(store), "--size", size, "--quiet"]) == 0
    words = ["train", "imagenet", *recipe, "--data-dir", str(store), "--batch_size", "3", "--epochs", "1"]
    words += ["--out", str(out), "--save-every", "0", "--quiet", "--workers", "1"]
    assert main(words) == 0
    first = (out / "model.safetensors").read_bytes()
    (out / "results.json").unlink()
    for name in sorted((out / "checkpoints").iterdir())[1:]:  # back to the checkpoint after the first step
        name.unlink()
    assert len(list((out / "checkpoints").iterdir())) == 1
    assert main([*words, "--resume"]) == 0
    assert (out / "model.safetensors").read_bytes() == first
    results = json.loads((out / "results.json").read_text())
    assert results["test"]["images"] == 3
    assert main(["evaluate", str(out), "--data-dir", str(store), "--crops", "10"]) == 0
    transfer = ["transfer", str(out), str(source / "train"), "--train-per-class", "1", "--splits", "2"]
    assert main([*transfer, "--kernel", "both"]) == 0
    figures = read_sealed(out / "transfer.json")
    assert {entry["kernel"] for entry in figures.values()} == {"linear", "rbf"}
    import numpy as np

    assert main(["features", str(out), str(source / "val"), "--out", str(folder / "val.npz")]) == 0
    assert np.load(folder / "val.npz")["vectors"].shape == (3, dim)


def test_the_whole_path_narrow(tmp_path: Path) -> None:
    whole_path(tmp_path, "--width", "0.03", "--crop", "100", scale=3.5, size="110", dim=120)


@pytest.mark.long
def test_the_whole_path_as_in_the_paper(tmp_path: Path) -> None:
    """`epitomic` at width 1 and 220 pixels, images of 256."""
    whole_path(tmp_path, scale=9.0, size="256", dim=4096)
