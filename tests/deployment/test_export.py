"""`epitomic export`: files that give the network's scores, or one line of error and no file."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from epitomic.cli import main
from epitomic.deployment import export, export_network, int8
from epitomic.deployment.formats import open_exported
from epitomic.models import from_pretrained
from epitomic.support.errors import UserError
from epitomic.training.run_folder import open_run

ONNX = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime"))), reason="needs epitomic[onnx]"
)
TORCHAO = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="needs epitomic[pt2e]")
COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler")


def scores(folder: Path, images: Tensor) -> Tensor:
    with torch.no_grad():
        return from_pretrained(folder)(images)


def read_metadata(to: str, file: Path) -> dict[str, Any]:
    """Reads the metadata in a file as docs/how-to/deploy.md says."""
    if to == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        return json.loads(session.get_modelmeta().custom_metadata_map["epitomic"])
    if to == "aoti":
        return json.loads(torch._inductor.aoti_load_package(str(file)).loader.get_metadata()["epitomic"])
    found = {"epitomic.json": ""}
    torch.export.load(file, extra_files=found)
    return json.loads(found["epitomic.json"])


@pytest.mark.parametrize(
    "to", [pytest.param("onnx", marks=ONNX), "torch", pytest.param("aoti", marks=(COMPILER, pytest.mark.long))]
)
def test_a_file_gives_the_scores_and_says_what_it_is(
    to: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ("model.onnx" if to == "onnx" else "model.pt2")
    assert main(["export", str(folder), "--to", to, "--out", str(file)]) == 0
    out = capsys.readouterr().out
    assert "256 images give equal scores" in out
    assert f"wrote {file}" in out
    run = open_run(folder)
    images = run.to_input(run.test.images[:5])
    torch.testing.assert_close(open_exported(to, file)(images), scores(folder, images), rtol=1e-3, atol=1e-4)
    said = read_metadata(to, file)
    assert (said["classes"], said["input"]["size"]) == (list(run.classes), 8)
    assert said["input"]["mean"] == list(run.standardize.mean)
    assert list(tmp_path.iterdir()) == [file]
    if to != "aoti":
        assert b"stack_trace" not in file.read_bytes()
        assert str(Path(__file__).parents[2]).encode() not in file.read_bytes()


@ONNX
def test_images_of_ones_own(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    for number in range(3):
        image.fromarray(torch.randint(0, 256, (9, 12), dtype=torch.uint8).numpy()).save(tmp_path / f"{number}.png")
    words = ["export", str(folder), "--to", "onnx", "--out", str(tmp_path / "m.onnx"), "--images", str(tmp_path)]
    assert main(words) == 0
    assert "3 images give equal scores" in capsys.readouterr().out


@pytest.mark.parametrize("to", [pytest.param("onnx", marks=ONNX), pytest.param("torch", marks=TORCHAO)])
def test_int8_agrees_with_the_network(to: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "SAME", 0.5)  # the network of the test has not learnt: its scores are close together
    file = tmp_path / ("model.onnx" if to == "onnx" else "model.pt2")
    assert main(["export", str(folder), "--to", to, "--out", str(file), "--int8"]) == 0
    assert read_metadata(to, file)["int8"] is True
    if to == "onnx":
        import onnx

        kinds = [node.op_type for node in onnx.load(file).graph.node]
        assert "QuantizeLinear" in kinds
        assert "Conv" in kinds
        assert {node.domain for node in onnx.load(file).graph.node} <= {"", "ai.onnx"}
    run = open_run(folder)
    images = run.to_input(run.test.images[:64])
    found, expected = open_exported(to, file)(images), scores(folder, images)
    assert (found - expected).norm() < 0.2 * expected.norm()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "tflite", "--out", "m.x"], "unknown format 'tflite': choose from onnx, torch, aoti"),
        (["--to", "torch", "--out", "m.onnx"], "--out m.onnx must end with .pt2 for --to torch"),
        (["--to", "torch", "--out", "m.pt2", "--calibration", "x"], "--calibration is for --int8"),
        (["--to", "torch", "--out", "m.pt2", "--images", "gone.png"], "gone.png cannot be read as an image"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    said: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(folder), *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@ONNX
def test_int8_without_enough_calibration_images(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("L", (9, 9)).save(tmp_path / "one.png")
    words = ["--to", "onnx", "--out", str(tmp_path / "m.onnx"), "--int8", "--calibration", str(tmp_path / "one.png")]
    assert main(["export", str(folder), *words]) == 2
    assert "--int8 needs at least 8 calibration images, got 1" in capsys.readouterr().err
    assert not (tmp_path / "m.onnx").exists()
    with pytest.raises(UserError, match="works with --to onnx and --to torch"):
        int8.check("aoti", torch.zeros(9, 1, 8, 8))


def test_weights_of_another_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"architectures": ["ResNetForImageClassification"]}')
    (other / "model.safetensors").write_bytes(b"")
    assert main(["export", str(other), "--to", "torch", "--out", str(tmp_path / "m.pt2")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert not (tmp_path / "m.pt2").exists()


def test_a_file_that_differs_leaves_nothing_behind(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = from_pretrained(folder)

    def worse(model: nn.Module, form: str) -> nn.Module:
        copied = from_pretrained(folder)
        with torch.no_grad():
            next(copied.parameters()).mul_(1.5)
        return copied

    monkeypatch.setattr(export, "for_export", worse)
    with pytest.raises(UserError, match=r"the file's scores differ from the network's by .*: nothing was written"):
        export_network(model, "torch", tmp_path / "m.pt2", torch.randn(4, 1, 8, 8))
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="there are no images"):
        export_network(model, "torch", tmp_path / "m.pt2", torch.empty(0, 1, 8, 8))
