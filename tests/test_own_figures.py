"""The table of trainings on own images: errors, intervals, shares of errors, and the classes that the weights know."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module tools/own_figures.py, which reads the runs below ``tmp_path``."""
    spec = importlib.util.spec_from_file_location("own_figures", ROOT / "tools" / "own_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def make_run(root: Path, name: str, run: str, ranks: str, classes: tuple[str, ...], crop: int = 64) -> None:
    folder = root / name / run
    folder.mkdir(parents=True)
    test = {"images": len(ranks), "errors": len(ranks) - ranks.count("1"), "ranks": ranks}
    test["classes"] = {label: {} for label in classes}
    facts = {"commit": "abcdef0123", "machine": {"processor": "AMD EPYC", "threads": 2}, "seconds": 590.0 + crop}
    recipe = {"photographs": {"crop": crop}, "epochs": 30}
    (folder / "run.json").write_text(json.dumps({**facts, "test": test, "recipe": recipe}))


def test_errors_are_compared_with_those_from_random_weights(figures: Any, tmp_path: Path) -> None:
    photos, few = ("n01443537", "n01440764"), ("brain", "chairs", "airplanes")
    make_run(tmp_path, "photos", "epitomic-0", "1" * 90 + "2" * 10, photos)
    make_run(tmp_path, "photos", "epitomic-1", "1" * 80 + "-" * 20, photos, crop=80)
    make_run(tmp_path, "photos", "epitomic-random-0", "1" * 70 + "2" * 30, photos)
    make_run(tmp_path, "few", "epitomic-random-10", "12", few)
    table = figures.own_images()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "_resnet" in line]
    assert [row[:5] for row in rows] == [
        ["twenty classes of Caltech-101", "`epitomic_resnet`", "random", "1", "2"],
        ["1,000 images of Imagenette", "`epitomic_resnet`", "trained", "2", "100"],
        ["1,000 images of Imagenette", "`epitomic_resnet`", "random", "1", "100"],
    ]
    assert [row[5] for row in rows] == ["50.00 %", "15.00 ± 7.07 %", "30.00 %"]
    assert rows[1][6] == "9.31 to 23.28 %"
    share, low, _, high = rows[1][7].replace("(", "").replace(")", "").split()
    assert share == "0.50"
    assert 0.2 < float(low) < 0.5 < float(high) < 0.9
    assert rows[1][8:] == ["64 to 80", "30", "670 s"]
    assert "- twenty classes of Caltech-101: brain (brain coral), chairs (rocking chair)\n" in table
    assert "- 1,000 images of Imagenette: goldfish\n" in table
    assert "commit abcdef0 on AMD EPYC with 2 threads" in table


def test_without_runs_it_says_so(figures: Any) -> None:
    assert figures.own_images() == "Not measured yet.\n"
