"""Trainings on a user's own images, through the command line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from epitomic.analysis.data_check import check_data, open_galleries
from epitomic.cli import main
from epitomic.data.own.images import Place, open_own
from epitomic.models import create_model
from epitomic.training.optimizer import parameter_groups
from epitomic.training.own import own_recipe
from epitomic.training.recipe import Optimizer, Start
from epitomic.training.run_folder import open_run
from tests.own_images import make_odd, make_own
from tests.training.conftest import command, run
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
    assert "pictures: 3 classes;" in told
    assert "1 image cannot be read and will be left out" in told
    assert "mean error over classes" in told
    out = tmp_path / "runs" / "pictures"
    assert (out / "report.html").is_file()
    results, recipe = (json.loads((out / name).read_text()) for name in ("results.json", "recipe.json"))
    tested = {name: row["images"] for name, row in results["test"]["classes"].items()}
    assert set(tested) == set(counts)
    assert sum(tested.values()) == results["test"]["images"]
    broken = str(tmp_path / "pictures" / "ant" / "broken.jpg")
    assert [*results["bad_images"]] == [broken]
    assert f"{results['test']['images']} to test on" in told
    assert recipe["model"]["name"] == "epitomic_resnet"
    check_report(out, counts, tested, broken)
    # the other commands know the images, the classes and the preprocessing
    assert main(["evaluate", str(out)]) == 0
    assert json.loads((out / "evaluation.json").read_text())["confusion"] == results["test"]["confusion"]
    capsys.readouterr()
    assert main(["predict", str(out), str(tmp_path / "pictures" / "ant" / "000.png"), "--format", "json"]) == 0
    assert {top["class"] for top in json.loads(capsys.readouterr().out)["top"]} == set(counts)


def check_report(out: Path, counts: dict[str, int], tested: dict[str, int], broken: str) -> None:
    """Compares every count of the report with the files that were made."""
    run = open_run(out)
    found = check_data(run)
    held = dict(zip(run.classes, found.training, strict=True))
    validated = torch.bincount(open_galleries(run)[1].images.labels, minlength=3).tolist()
    assert {name: held[name] + v + tested[name] for name, v in zip(run.classes, validated, strict=True)} == counts
    page = (out / "report.html").read_text()
    sizes = [found.images[split] for split in ("training", "validation", "test")]
    assert sum(sizes) == sum(counts.values())
    assert "{} training images, {} validation images, {} test images; the median".format(*sizes) in page
    assert "1 image cannot be read" in page
    assert broken in page
    assert page.index('id="mistakes"') < page.index('id="data"') < page.index('id="epitomes"')
    rows = [re.findall(r">([^<>]+)</t[hd]>", row) for row in page.split("<tr>")]
    for name in ("three", "Żółw und 猫"):
        assert [name, str(held[name]), str(tested[name])] in [row[:3] for row in rows]


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


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a small residual network, trained on other photographs."""
    folder = tmp_path_factory.mktemp("weights")
    root = make_own(folder / "other", 8, ("cat", "dog", "eel"), side=64)
    finished = run(folder / "run", "--no-test", "--ema", "0", recipe=(str(root), *QUICK))
    assert finished.returncode == 0, finished.stderr
    return folder / "run"


def start(root: Path, weights: Path) -> tuple[str, ...]:
    kept = [word for word in QUICK if word not in ("--width", "0.25", "--from", "none")]
    return (str(root), *kept, "--from", str(weights), "--ema", "0")


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_starting_from_weights(weights: Path, tmp_path: Path) -> None:
    root = make_own(tmp_path / "own", 20)
    out, frozen = tmp_path / "run", tmp_path / "frozen"
    finished = run(out, "--optimizer.lr", "1e-9", recipe=start(root, weights))
    assert finished.returncode == 0, finished.stderr
    assert f"from {weights}" in finished.stdout
    before, after = tensors(weights), tensors(out)
    assert after["out.weight"].shape[0] == 2
    assert torch.allclose(before["stem.conv.weight"], after["stem.conv.weight"], atol=1e-6)
    config, source = (json.loads((f / "config.json").read_text()) for f in (out, weights))
    assert config["width"] == 0.25
    assert config["standardize"] == source["standardize"]
    finished = run(frozen, "--freeze", recipe=start(root, weights))
    assert finished.returncode == 0, finished.stderr
    after = tensors(frozen)
    assert all(torch.equal(before[name], after[name]) for name in before if not name.startswith("out."))


def test_the_last_layer_has_its_own_rate(weights: Path) -> None:
    model = create_model("epitomic_resnet", pretrained=weights, num_classes=7)
    groups = parameter_groups(model, Optimizer(), Start(str(weights), rate=0.1))
    rates = {id(p): group["rate"] for group in groups for p in group["params"]}  # type: ignore[attr-defined]
    assert {name: rates[id(p)] for name, p in model.named_parameters()} == {
        name: 1.0 if name.startswith("out.") else 0.1 for name, _ in model.named_parameters()
    }


def test_python_starts_from_weights_too(weights: Path) -> None:
    """`create_model(..., pretrained=..., num_classes=7)` followed by plain training."""
    model = create_model("epitomic_resnet", pretrained=weights, num_classes=7)
    assert torch.equal(model.state_dict()["stem.conv.weight"], tensors(weights)["stem.conv.weight"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    images, labels = torch.randn(14, 3, 64, 64), torch.arange(14) % 7
    losses = []
    for _ in range(6):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_fine_tuning_resumes_bit_for_bit_after_a_kill(weights: Path, tmp_path: Path) -> None:
    root = make_own(tmp_path / "own", 20)
    recipe = start(root, weights)
    straight, out = tmp_path / "straight", tmp_path / "run"
    assert run(straight, recipe=recipe).returncode == 0
    words = command(out, "--save-every", "0", "--resume", recipe=recipe)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and len([*out.glob("checkpoints/*.safetensors")]) < 2:
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "results.json").exists()
    away = weights.with_name("moved")
    weights.rename(away)  # a resumed run needs the weights no more
    try:
        resumed = run(out, "--resume", recipe=("--threads", "1"))
    finally:
        away.rename(weights)
    assert resumed.returncode == 0, resumed.stderr
    assert_same(straight, out)


def test_weights_that_fit_are_the_default(tmp_path: Path) -> None:
    place = Place(str(make_own(tmp_path / "photographs", 12)))
    photographs = open_own(place)
    assert own_recipe(photographs, place, {}).start.weights == "epitomic_resnet-tiny_imagenet"
    assert own_recipe(photographs, place, {"model.name": "strided_resnet"}).start.weights is None
    root = make_own(tmp_path / "own", 12, side=32)
    images = open_own(Place(str(root)))
    assert own_recipe(images, Place(str(root)), {}).start.weights == "epitomic_fast-cifar10"
    assert own_recipe(images, Place(str(root)), {"model.name": "maxpool_small"}).start.weights is None
    assert own_recipe(images, Place(str(root)), {"start.weights": "none"}).start.weights is None


@pytest.mark.parametrize(
    ("side", "options", "message"),
    [
        (
            48,
            ("--from", "epitomic_small-mnist"),
            "does not fit own: it is for small grey images of 28 pixels, and these",
        ),
        (
            48,
            ("--from", "epitomic_fast-cifar10"),
            "it is for small colour images of 32 pixels, and these are photographs",
        ),
        (
            32,
            ("--from", "epitomic_small-mnist"),
            "these are small colour images of about 32 pixels; give --from epitomic_f",
        ),
        (32, ("--from", "nowhere"), "no folder nowhere: a trained network is a folder"),
        (32, ("--from", "other"), r"other/config\.json is of another library \(\['ViT'\]\)"),
        (32, ("--from", "none", "--freeze"), "--freeze trains the last layer alone, which needs trained weights"),
        (32, ("--minutes", "3"), "--minutes chooses the epochs: give --minutes or --epochs, not both"),
    ],
)
def test_bad_input_writes_nothing(
    side: int, options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_own(tmp_path / "own", 12, side=side)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"architectures": ["ViT"]}')
    finished = run(tmp_path / "run", *options, recipe=("own/", "--epochs", "1", "--quiet"))
    assert finished.returncode == 2
    assert re.search(message, finished.stderr), finished.stderr
    assert finished.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_minutes_are_for_own_images_and_above_zero(tmp_path: Path) -> None:
    assert "is for a new run on images of your own" in run(tmp_path / "run", "--minutes", "1").stderr
    root = make_own(tmp_path / "own")
    assert "must be above 0" in run(tmp_path / "run", "--minutes", "-1", recipe=(str(root),)).stderr


def test_a_budget_chooses_the_steps_and_another_run_repeats_it(tmp_path: Path) -> None:
    root = make_own(tmp_path / "own", 20)
    options = [word for word in QUICK if word not in ("--epochs", "2")]
    finished = run(tmp_path / "run", "--minutes", "0.03", recipe=(str(root), *options))
    assert finished.returncode == 0, finished.stderr
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    steps = int((tmp_path / "run" / "metrics.csv").read_text().split()[-1].split(",")[1])
    assert recipe["steps"] >= 1
    assert ("the time is short" in finished.stdout) == (recipe["epochs"] < 10)
    assert recipe["epochs"] == -(-recipe["steps"] // 5)
    assert steps == recipe["steps"]
    straight = tmp_path / "straight"
    assert run(straight, *_choices(recipe), recipe=(str(root), *options)).returncode == 0
    assert_same(straight, tmp_path / "run")


def _choices(recipe: dict[str, Any]) -> list[str]:
    chosen = {
        **{"epochs": recipe["epochs"], "steps": recipe["steps"], "schedule.warmup": recipe["schedule"]["warmup"]},
        **{"photographs.crop": recipe["photographs"]["crop"], "data.crops": recipe["data"]["crops"] or "none"},
    }
    return [word for name, value in chosen.items() for word in (f"--{name}", str(value))]
