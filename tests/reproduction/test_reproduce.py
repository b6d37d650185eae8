from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from epitomic.cli import main
from epitomic.reproduction.table_plans import TABLES, PlannedRun, get_table, plan_runs
from epitomic.support.errors import UserError
from epitomic.support.files import read_sealed
from epitomic.training.recipes import get_recipe
from epitomic.training.run_folder import KEPT

ROOT = Path(__file__).parents[2]
SHORT = ("--models", "epitomic_small", "maxpool_small", "--seeds", "2", "--epochs", "1", "--model.width", "0.25")


def is_kept(folder: Path) -> bool:
    return all((folder / name).is_file() for name in KEPT)


def reproduce(folder: Path, *options: str) -> int:
    return main(["reproduce", "digits", "--out", f"{folder}/kept", "--runs", f"{folder}/runs", *SHORT, *options])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    assert reproduce(folder, "--jobs", "2") == 0
    return folder


def test_a_table_of_every_network_and_seed(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"{model}-{seed}" for model in ("epitomic_small", "maxpool_small") for seed in (0, 1)]
    errors = {}
    for name in names:
        assert sorted(path.name for path in (made / "kept" / name).iterdir()) == sorted(KEPT)
        errors[name] = json.loads((made / "kept" / name / "results.json").read_text())["test"]["error"]
    capsys.readouterr()
    assert reproduce(made, "--show") == 0
    shown = capsys.readouterr().out
    assert shown == (made / "kept" / "table.md").read_text()
    for model in ("epitomic_small", "maxpool_small"):
        values = [errors[f"{model}-{seed}"] for seed in (0, 1)]
        row = next(line for line in shown.splitlines() if line.startswith(f"| `{model}` | 2 |"))
        assert f"| {100 * statistics.fmean(values):.2f} ± {100 * statistics.stdev(values):.2f} |" in row
    assert shown.count("epitomic train digits --epochs 1 --model.width 0.25 --model maxpool_small --seed 1") == 1


def test_nothing_is_run_twice(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*") if path.is_file()}
    assert reproduce(made) == 0
    assert "4 runs, 4 of them finished" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*") if path.is_file()} == before


def test_a_part_of_the_runs_leaves_the_whole_table(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (made / "kept" / "table.md").read_text()
    (made / "kept" / "maxpool_small-1").rename(made / "aside")
    assert reproduce(made, "--models", "maxpool_small") == 0  # --models twice: the last one counts
    assert "2 runs, 1 of them finished" in capsys.readouterr().out
    (made / "aside" / "results.json").replace(made / "kept" / "maxpool_small-1" / "results.json")
    assert main(["reproduce", "digits", "--show", "--out", f"{made}/kept", *SHORT[-4:]]) == 0
    assert capsys.readouterr().out.splitlines()[:6] == whole.splitlines()[:6]
    rows = (made / "kept" / "table.md").read_text().splitlines()[4:6]
    assert [row.split("|")[1:3] for row in rows] == [[" `epitomic_small` ", " 2 "], [" `maxpool_small` ", " 2 "]]


def test_rows_of_another_recipe_are_not_mixed(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(made, "--optimizer.lr", "0.5") == 2
    message = capsys.readouterr().err
    assert "epitomic_small-0" in message
    assert "optimizer.lr 0.05 where the recipe now has 0.5" in message
    other = made / "kept" / "epitomic_small-7"  # a seed that is not planned
    shutil.copytree(made / "kept" / "epitomic_small-0", other)
    recipe = read_sealed(other / "recipe.json")
    (other / "recipe.json").write_text(json.dumps({**recipe, "seed": 7, "epochs": 9}))
    assert reproduce(made, "--show") == 2
    assert "epochs 9 where the recipe now has" in capsys.readouterr().err
    shutil.rmtree(other)


def test_only_the_networks_asked_for_are_shown(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(made, "--show", "--models", "maxpool_small") == 0
    shown = capsys.readouterr().out
    assert "| `maxpool_small` |" in shown
    assert "epitomic_small" not in shown


def test_goes_on_after_a_signal(tmp_path: Path) -> None:
    options = ["--models", "epitomic_small", "--seeds", "1", "--epochs", "12", "--model.width", "0.25"]
    folders = ["--out", str(tmp_path / "kept"), "--runs", str(tmp_path / "runs")]
    command = [sys.executable, "-m", "epitomic", "reproduce", "digits", *folders, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    metrics = tmp_path / "runs" / "epitomic_small-0" / "metrics.csv"
    deadline = time.monotonic() + 300
    while not metrics.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, output
    assert "repeat the command to continue" in output
    assert not is_kept(tmp_path / "kept" / "epitomic_small-0")
    epochs = len(metrics.read_text().splitlines())
    assert epochs < 12
    assert subprocess.run(command, capture_output=True, timeout=300, check=False).returncode == 0
    assert is_kept(tmp_path / "kept" / "epitomic_small-0")
    facts = json.loads((tmp_path / "kept" / "epitomic_small-0" / "run.json").read_text())
    assert facts["first_step"] == 0 < facts["sessions"][0]["first_step"]  # it did not begin anew


def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "runs" / "epitomic_small-0"
    blocked.mkdir(parents=True)
    (blocked / "recipe.json").write_text("{}")
    assert reproduce(tmp_path, "--seeds", "1") == 1
    shown = capsys.readouterr().out
    assert "epitomic_small-0 failed: exit status 2" in shown
    assert "recipe.json is damaged: it has no entries" in shown
    assert is_kept(tmp_path / "kept" / "maxpool_small-0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["mnits"], "did you mean 'mnist'"),
        (["digits", "--jobs", "0"], "--jobs must be at least 1"),
        (["digits", "--models", "alexnet"], "unknown network of this table 'alexnet'"),
        (["digits", "--epochs", "2"], "add --out with a folder for it"),
        (["digits", "--model", "maxpool_small", "--out", "x"], "--model is set by the table: use --models"),
        (["digits", "--seed", "5", "--out", "x"], "--seed is set by the table: use --seeds"),
    ],
)
def test_bad_input(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *options]) == 2
    assert message in capsys.readouterr().err


def test_tables_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"^{name} ", shown, re.MULTILINE) for name in TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_plans_are_whole_and_grow_evenly(name: str) -> None:
    table = TABLES[name]
    planned = list(plan_runs(table))
    assert len(set(planned)) == len(planned) == sum(table.seeds.values())
    assert [one.seed for one in planned] == sorted(one.seed for one in planned)
    for one in planned:
        assert one.resolve(get_recipe(table.name)).model.name == one.model


@pytest.mark.parametrize("name", TABLES)
def test_published_tables_are_what_their_runs_say(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept = ROOT / "results" / name
    if not kept.is_dir():
        pytest.skip(f"no run of {name} is published yet")
    assert main(["reproduce", name, "--show", "--out", str(kept)]) == 0
    assert capsys.readouterr().out == (kept / "table.md").read_text()


def test_unknown_tables_are_errors() -> None:
    with pytest.raises(UserError, match="unknown table"):
        get_table("nothing")
    assert PlannedRun("a", 1).name == "a-1"
