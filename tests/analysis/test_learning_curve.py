"""The learning curve: trainings on shares of the images, and what the report says about them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from epitomic.analysis.learning_curve import read_learning_curve, share_recipe
from epitomic.cli import main
from epitomic.training.recipes import get_recipe
from epitomic.training.run_folder import open_run
from tests.support.test_lock import hold


def test_the_steps_stay_the_same() -> None:
    recipe = get_recipe("mnist")
    half = share_recipe(recipe, 0.5)
    assert half.epochs == 2 * recipe.epochs
    assert half.schedule.warmup == 2 * recipe.schedule.warmup
    assert half.schedule.patience == 2 * recipe.schedule.patience
    assert half.data.share == 0.5
    assert half.batch_size == recipe.batch_size


def test_the_report_trains_on_shares_once(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    recipe = json.loads((run / "recipe.json").read_text())
    recipe["epochs"], recipe["batch_size"] = 1, 256
    (run / "recipe.json").write_text(json.dumps(recipe))
    words = ["report", str(run), "--learning-curve", "--images", "20", "--no-robustness"]
    holder, _ = hold(run / "learning-curve/0.25")  # the same command, elsewhere
    assert main(words) == 2
    holder.kill()
    holder.wait()
    assert "learning-curve/0.25 is in use: process" in capsys.readouterr().err
    assert main(words) == 0
    page = (run / "report.html").read_text()
    points = read_learning_curve(open_run(run))
    assert [point.share for point in points] == ["a quarter", "a half", "all"]
    for point in points:
        assert point.low <= point.error <= point.high
        assert f'<th scope="row">{point.share}</th><td>{100 * point.error:.2f} %</td>' in page
    shares = [json.loads((run / f"learning-curve/{share}/recipe.json").read_text()) for share in ("0.25", "0.5")]
    assert [share["epochs"] for share in shares] == [4, 2]
    written = [(run / f"learning-curve/{share}/results.json").stat().st_mtime_ns for share in ("0.25", "0.5")]
    assert main(words) == 0  # nothing is trained again
    assert [(run / f"learning-curve/{s}/results.json").stat().st_mtime_ns for s in ("0.25", "0.5")] == written
    capsys.readouterr()
    assert main(["report", str(run / "learning-curve/0.5"), "--learning-curve"]) == 2
    assert "needs a run on all images" in capsys.readouterr().err
    (run / "results.json").unlink()
    assert main(words) == 2
    assert "--learning-curve needs a finished and tested run" in capsys.readouterr().err
