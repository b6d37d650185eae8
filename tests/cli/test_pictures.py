"""The commands that draw, through the command line."""

from __future__ import annotations

import csv
import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from epitomic.analysis import robustness
from epitomic.analysis.matches import match_layers
from epitomic.analysis.reconstruction import reconstruct
from epitomic.analysis.robustness_table import read_rows
from epitomic.cli import main
from epitomic.visualisation import RunFolder, open_run
from tests.runs import MakeRun
from tests.training.conftest import SHORT


def test_every_command_draws(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGBA", (20, 31), "red").save(tmp_path / "red.png")
    out = tmp_path / "out"
    for words in (
        ["filters", folder, "--out", out / "filters"],
        ["filters", folder, folder, "--sharp", "--grey", "--contrast", "shared", "--out", out / "two"],
        ["filters", folder, "--epitome", "2", "--out", out / "epitome"],
        ["filters", folder, "--layer", "2", "--images", "40", "--out", out / "patches"],
        ["curves", folder, "--out", out / "curves", "--against", "seconds", "--scale", "linear"],
        ["curves", folder, folder / "metrics.csv", "--out", out / "epochs.png"],  # as results/TABLE/* has table.md
        ["explain", folder, tmp_path / "red.png", "--out", out / "red"],
        ["explain", folder, "3", "--out", out / "three"],
        ["explain", folder, "--images", "60", "--out", out / "many"],
        ["robustness", folder, "--images", "20", "--shifts", "1", "--out", out / "robustness"],
        ["report", folder, "--images", "20", "--no-robustness", "--out", out],
    ):
        assert main(list(map(str, words))) == 0, words
    text = capsys.readouterr().out
    names = ("filters", "two", "epitome", "patches", "curves", "epochs", "red", "three", "robustness")
    for name in names:
        assert f"wrote {out / name}.png" in text
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (out / f"{name}.svg").read_bytes()[:1000]
    assert len(list(csv.DictReader((out / "robustness.csv").open()))) == 5
    assert f"wrote {out / 'robustness'}.md" in text
    assert "predictions changed" in (out / "robustness.md").read_text()
    assert "sum of all rises 0.00" in text
    assert "relative error" in text
    check_reconstruction(folder, json.loads((out / "many.json").read_text()))
    assert (out / "report.html").is_file()


def check_reconstruction(folder: Path, kept: dict[str, Any]) -> None:
    run = open_run(folder)
    _, matches = match_layers(run.model, run.to_input(run.test.images[:60]))
    assert kept["images"] == 60
    for count, errors in ((1, kept["errors"]["1"]), (4, kept["errors"]["4"]), (None, kept["errors"]["all"])):
        expected = reconstruct(matches[0], matches=count).error
        assert errors["mean"] == pytest.approx(expected.mean().item())
        assert errors["standard_deviation"] == pytest.approx(expected.std(correction=0).item())


def test_a_robustness_table_grows_run_by_run(
    make_run: MakeRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        shutil.copytree(make_run(seed=seed), f"run-{seed}")
    command = ["robustness", "--images", "20", "--shifts", "1", "--out", "all", "--add"]
    assert main([*command, "run-0"]) == 0
    first = Path("all.csv").read_text()
    shutil.rmtree("run-0")  # as when the machine is gone: what was measured is not measured again
    assert main([*command, "run-0/", "run-1"]) == 0
    assert Path("all.csv").read_text().startswith(first)
    assert len(read_rows(Path("all.csv"))) == 10
    assert Path("all.md").read_text().startswith("`epitomic robustness run-0 run-1 --shifts 1 --images 20 --out all`")
    assert capsys.readouterr().out.count("wrote all.png") == 2
    shutil.copytree("run-1", "run-2")
    assert main([*command, "run-2"]) == 0  # again seed 1, so that they differ in something else
    assert [line.split("  ")[0] for line in Path("all.md").read_text().splitlines()[5:8]] == [
        f"epitomic_small (run-{number})" for number in range(3)
    ]
    assert "last added to at commit" in Path("all.md").read_text()
    shutil.copytree("run-1", "run-3")
    for known_or_new in ("run-1", "run-3"):
        assert main([*command, known_or_new, "--shifts", "2"]) == 2
        assert "all.csv has shifts of up to 1 pixels of 20 images, and this would be" in capsys.readouterr().err
    Path("all.csv").write_text("run,shift\nrun-0,1\n")
    assert main([*command, "run-1"]) == 2
    assert "cannot read all.csv, which must hold rows" in capsys.readouterr().err


def test_what_is_added_meanwhile_stays(
    make_run: MakeRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        shutil.copytree(make_run(seed=seed), f"run-{seed}")
    command = ["robustness", "--images", "20", "--shifts", "1", "--out", "all", "--add"]
    measure = robustness.measure_shifts

    def slow_measure(view: RunFolder, **options: Any) -> list[robustness.ShiftRow]:
        monkeypatch.setattr(robustness, "measure_shifts", measure)
        assert main([*command, "run-1"]) == 0
        return measure(view, **options)

    monkeypatch.setattr(robustness, "measure_shifts", slow_measure)
    assert main([*command, "run-0"]) == 0
    assert [row.run for row in read_rows(Path("all.csv"))] == ["run-1"] * 5 + ["run-0"] * 5


def test_weights_that_ship_are_drawn_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["filters", "epitomic_small-mnist"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["filters.png", "filters.svg"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("filters {none}", "no folder"),
        ("filters {empty}", "is no run folder"),
        ("filters {begun}", "has no weights yet"),
        ("filters {run} --epitome 99", "--epitome must be from 0 to 15"),
        ("filters {run} {run} --epitome 1", "--epitome is for one RUN, got 2"),
        ("filters {run} --epitome 1 --layer 2", "not both"),
        ("filters {run} --layer x", "unknown layer 'x'"),
        ("filters {run} --contrast x", "--contrast"),
        ("filters {plain} --epitome 1", "has no epitomes"),
        ("curves {begun}", "no epoch is finished yet"),
        ("curves {run} --metric eror", "unknown --metric 'eror'"),
        ("curves {run} --against hours", "unknown --against 'hours'"),
        ("curves {run} --scale x", "unknown --scale 'x'"),
        ("explain {run} {none}", "is not there"),
        ("explain {run} 99999", "from 0 to 359"),
        ("explain {begun} 0", "has no weights yet"),
        ("explain {run} ²", "is not there"),
        ("explain {run}", "explain takes one IMAGE, or --images N"),
        ("explain {run} 3 --images 2", "explain takes one IMAGE, or --images N"),
        ("explain {plain} --images 2", "has no epitomic layer that sees the image itself"),
        ("curves epitomic_small-mnist", "only a run folder has curves"),
        ("robustness {run} --shifts 0", "--shifts must be from 1 to 7"),
        ("robustness {run} --images 0", "--images must be at least 1"),
        ("robustness {begun}", "has no weights yet"),
        ("report {none}", "no folder"),
        ("report {run} --images 0", "--images must be at least 1"),
        ("report {run} --out {none}/../run-0/config.json/x.html --images 20 --no-robustness", "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    words: str,
    message: str,
    folder: Path,
    make_run: MakeRun,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "run-0").symlink_to(folder)
    places = {
        "none": tmp_path / "none.png",
        "empty": tmp_path / "empty",
        "run": folder,
        "begun": make_run(epochs=0, finished=False) if "begun" in words else "",
        "plain": make_run("maxpool_small") if "plain" in words else "",
    }
    assert main(words.format(**places).split()) == 2
    text = capsys.readouterr().err
    assert message in text
    assert text.count("\n") == 1


def test_training_ends_with_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = torch.get_num_threads()
    short = ["train", *SHORT[:3], "--epochs", "1", "--threads", "1"]
    assert main([*short, "--out", str(tmp_path / "run")]) == 0
    assert f"the report is {tmp_path / 'run' / 'report.html'}" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").is_file()

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr("epitomic.visualisation.report.write_report", fail)
    assert main([*short, "--out", str(tmp_path / "other")]) == 0
    captured = capsys.readouterr()
    assert "no report was written (no ink)" in captured.err
    assert "test error" in captured.out
    assert not (tmp_path / "other" / "report.html").exists()
    torch.set_num_threads(threads)


def test_the_example_runs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = Path(__file__).parents[2] / "examples" / "look_at_a_run.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["look_at_a_run.py", str(folder)])
    names = runpy.run_path(str(example))
    assert names["figure"].axes
    assert (tmp_path / "look_at_a_run.png").is_file()
