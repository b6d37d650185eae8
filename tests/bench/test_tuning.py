"""`epitomic tune`: the algorithms of each layer of a network, timed and remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from epitomic.cli import main
from epitomic.models import create_model
from epitomic.ops import measuring
from epitomic.ops.selection import SELECTION
from epitomic.ops.tuning_file import TUNING, device_key
from tests.runs import MakeRun

SMALL = ["--batch-size", "4", "--threads", "1", "--device", "cpu"]


@pytest.fixture(autouse=True)
def tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tuning.json"
    monkeypatch.setenv("EPITOMIC_TUNING", str(path))
    return path


def test_every_layer_has_a_line(tuning: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "epitomic_small", *SMALL, "--image-size", "12"]) == 0
    shown = capsys.readouterr().out
    assert "training steps of 4 images of 1 x 12 x 12, 32-true\non CPU: " in shown
    model = create_model("epitomic_small")
    names = [name for name, module in model.named_modules() if getattr(module, "algorithm", None) == "auto"]
    assert names
    assert all(f"\n{name} " in shown for name in names)
    assert {"rule", "fastest", "gain", "direct", "one_convolution", "winograd"} <= set(shown.split())
    assert f"kept in {tuning}" in shown
    shapes = json.loads(tuning.read_text())["devices"][device_key(torch.device("cpu"))]["milliseconds"]
    assert len(shapes) == len(names)
    assert all("input (4, " in shape for shape in shapes)
    assert any("channels_last" in shape for shape in shapes)
    assert not SELECTION.benchmark


def test_a_run_gives_its_network_and_batch_size(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(finished=False)
    contests: list[tuple[int, ...]] = []

    def time_step(call: Any, algorithms: list[str]) -> dict[str, float]:
        contests.append(tuple(call.input.shape))
        assert not any(call.gradients)
        return {name: 2.0 if name != "direct" else 1.0 for name in algorithms} | {"winograd": float("inf")}

    monkeypatch.setattr(measuring, "time_step", time_step)
    batch = json.loads((folder / "recipe.json").read_text())["batch_size"]
    for _ in range(2):  # the second time, the file has all timings
        TUNING.path = None
        assert main(["tune", str(folder), "--inference", "--device", "cpu"]) == 0
        shown = capsys.readouterr().out
        assert f"forward passes of {batch} images of 1 x 8 x 8" in shown
        assert "2.00x" in shown  # the rule takes another one
    assert len(contests) == len(set(contests))
    assert {shape[0] for shape in contests} == {batch}


def test_layers_of_equal_sizes_are_timed_once(monkeypatch: pytest.MonkeyPatch, tuning: Path) -> None:
    from epitomic import EpitomicConv2d
    from epitomic.bench.tuning import tune
    from epitomic.support.console import Progress

    contests = []

    def time_step(call: Any, algorithms: list[str]) -> dict[str, float]:
        contests.append(call)
        return dict.fromkeys(algorithms, 1.0)

    monkeypatch.setattr(measuring, "time_step", time_step)
    layers = [EpitomicConv2d(3, 3, 3, stride=1, padding=1) for _ in range(3)]
    found = tune(
        torch.nn.Sequential(*layers), torch.randn(1, 3, 8, 8), Progress(3, quiet=True), training=False, bfloat16=True
    )
    assert [t.name for t in found] == ["0", "1", "2"]
    assert len({t.decision.shape for t in found}) == len(contests)
    assert "bfloat16" in found[0].decision.shape


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tune", "alexnet", "--image-size", "64"], "image_size of alexnet"),
        (["tune", "no-such-network"], "no-such-network"),
        (["tune", "epitomic_small-mnist", "--image-size", "8"], "--image-size goes with the name of a network"),
        (["tune", "epitomic_small", "--precision", "64-true"], "--precision invalid choice: '64-true'"),
        (["tune", "epitomic_small", "--device", "cuda:77"], "cannot use --device cuda:77 here"),
    ],
)
def test_what_does_not_fit_is_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_too_little_memory_names_the_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch.nn.Linear, "forward", fails)
    assert main(["tune", "epitomic_small", *SMALL, "--image-size", "8"]) == 2
    assert "too little memory for a batch of 4 images: try a smaller --batch-size" in capsys.readouterr().err
