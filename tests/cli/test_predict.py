"""`epitomic predict`: files, folders and standard input, as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from epitomic.analysis.prediction import class_names
from epitomic.cli import main
from epitomic.models import from_pretrained
from epitomic.support.errors import UserError

Image = pytest.importorskip("PIL.Image", reason="needs Pillow: pip install 'epitomic[images]'")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "new ones"
    (folder / "deeper").mkdir(parents=True)
    for number, name in enumerate(("a.png", "deeper/ü 数.PNG")):
        values = torch.randint(0, 256, (9, 9 + number), dtype=torch.uint8)
        Image.fromarray(values.numpy()).save(folder / name)
    return folder


def test_the_classes_are_those_of_the_network(folder: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(pictures / "a.png")
    assert main(["predict", str(folder), file, "--top", "3", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    model = from_pretrained(folder)
    with torch.no_grad():
        shares, labels = model(model.preprocess(file))[0].softmax(0).topk(3)  # type: ignore[operator]
    assert found["file"] == file
    assert [entry["class"] for entry in found["top"]] == [str(label) for label in labels.tolist()]
    assert [entry["probability"] for entry in found["top"]] == pytest.approx(shares.tolist(), rel=1e-5)


def test_folders_csv_and_a_bad_image(folder: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pictures / "bad.jpg").write_bytes(b"no image")
    assert main(["predict", str(folder), str(pictures), "--top", "2", "--format", "csv"]) == 1
    captured = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert [(Path(row["file"]).name, row["rank"]) for row in rows] == [
        ("a.png", "1"),
        ("a.png", "2"),
        ("ü 数.PNG", "1"),
        ("ü 数.PNG", "2"),
    ]
    assert (
        captured.err
        == f"epitomic: skipped {pictures / 'bad.jpg'}: it is not a JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF image\n"
    )


@pytest.mark.parametrize("kind", ["image", "paths"])
def test_standard_input(
    kind: str, folder: Path, pictures: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pictures / "a.png"
    contents = file.read_bytes() if kind == "image" else f"{file}\n\n{file}\n".encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(contents)))
    assert main(["predict", str(folder), "-"]) == 0
    names = [line.partition("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == (["-"] if kind == "image" else [str(file)] * 2)


def test_many_images_go_in_batches(
    folder: Path, pictures: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [str(pictures / "a.png"), "missing.png", str(pictures / "deeper/ü 数.PNG")]
    assert main(["predict", str(folder), *files]) == 1
    together = capsys.readouterr().out
    monkeypatch.setattr("epitomic.analysis.prediction.BATCH", 1)
    assert main(["predict", str(folder), *files]) == 1
    assert capsys.readouterr().out == together


def test_names_of_classes(tmp_path: Path) -> None:
    ids = ("n01440764", "n03888257")
    assert class_names(ids) == ("tench", "parachute")
    file = tmp_path / "names"
    for text in ("fish\nchute\n", "n03888257\tchute\nn01440764\tfish", '["fish", "chute"]'):
        file.write_text(text)
        assert class_names(ids, file) == ("fish", "chute")
    file.write_text('{"n01440764": "fish"}')
    assert class_names(ids, file) == ("fish", "parachute")
    for text, says in (
        ("one\n", "has 1 names"),
        ("a,b\n", "names none of the network's classes"),
        ("{", "cannot read"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=says):
            class_names(ids, file)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("{new} {new}/a.png", "no folder"),
        ("{run} {new}/nothing.png", "nothing.png cannot be read: No such file or directory"),
        ("{run} {empty}", "is a folder without images"),
        ("{run} {new}/a.png --top 0", "--top must be at least 1"),
        ("{run} {new}/a.png --format xml", "--format"),
        ("{other} {new}/a.png", "is of another library (['ResNet'])"),
    ],
)
def test_bad_input_is_code_2(
    words: str, says: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"architectures": ["ResNet"]}')
    (other / "model.safetensors").touch()
    (tmp_path / "empty").mkdir()
    places = {"run": folder, "new": tmp_path / "new", "empty": tmp_path / "empty", "other": other}
    assert main(["predict", *words.format(**places).split()]) == 2
    assert says in capsys.readouterr().err
