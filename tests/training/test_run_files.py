"""Every file of a run folder is checked before it is believed: one line that names it, whatever is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from epitomic.cli import main
from epitomic.support.errors import UserError
from epitomic.support.files import SEAL, read_sealed
from epitomic.training.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
READERS: dict[str, Any] = {
    "results.json": lambda run: run.results,
    "run.json": lambda run: run.facts,
    "recipe.json": lambda run: run.recipe,
    "config.json": lambda run: run.config,
    "metrics.csv": lambda run: run.metrics,
}


@pytest.fixture
def copy(straight: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(straight, tmp_path / "run"))


@pytest.mark.parametrize("name", READERS)
def test_a_changed_figure_is_noticed(name: str, copy: Path) -> None:
    path = copy / name
    text = path.read_text()
    digit = next(place for place in range(len(text) // 2, len(text)) if text[place] in "12345678")
    path.write_text(text[:digit] + str(int(text[digit]) + 1) + text[digit + 1 :])
    with pytest.raises(UserError, match=r"do(es)? not match") as caught:
        READERS[name](RunFolder(copy))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_was_changed_on_purpose_is_read_without_its_seal(copy: Path) -> None:
    path = copy / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "classes": list("abcdefghij")}))
    with pytest.raises(UserError, match=f'if you changed it on purpose, remove its entry "{SEAL}"'):
        RunFolder(copy).config  # noqa: B018
    unseal(path)
    assert RunFolder(copy).classes[0] == "a"


def unseal(path: Path) -> dict[str, Any]:
    values = json.loads(path.read_text())
    values.pop(SEAL)
    path.write_text(json.dumps(values))
    return values


BAD_ENTRIES = [
    ("results.json", "epochs", "three", "whole number"),
    ("results.json", "epochs", 0, "at least 1"),
    ("results.json", "wall_seconds", None, "seconds"),
    ("results.json", "validation_error", 1.5, "from 0 to 1"),
    ("results.json", "test", [], "object"),
    ("results.json", "test", {"images": 3, "error": 0.5, "errors": "x"}, "errors"),
    ("results.json", "test", {"images": 3, "error": 0.5, "errors": 1, "ranks": "12"}, "2 places for 3 images"),
    ("results.json", "test", {"images": 3, "error": 0.5, "errors": 1, "confusion": [[1, 2]]}, "square table"),
    ("run.json", "sessions", 5, "list of objects"),
    ("run.json", "versions", "2.13", "texts"),
    ("run.json", "wall_seconds", float("nan"), "seconds"),
    ("recipe.json", "epochs", [], "epochs"),
    ("recipe.json", "surprise", 1, "surprise"),
    ("config.json", "classes", 10, "list of texts"),
    ("config.json", "num_classes", -1, "whole number"),
]


@pytest.mark.parametrize(("name", "entry", "value", "message"), BAD_ENTRIES)
def test_entries_that_do_not_fit(name: str, entry: str, value: Any, message: str, copy: Path) -> None:
    path = copy / name
    path.write_text(json.dumps({**unseal(path), entry: value}))
    with pytest.raises(UserError, match=message) as caught:
        READERS[name](RunFolder(copy))
    assert str(path) in str(caught.value)


HEAD = "epoch,step,lr,train_loss,train_error,val_loss,val_error,val_top5_error,best_epoch\n"
ROW = "0,20,0.1,1.0,0.5,1.0,0.5,0.1,0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "first line"),
        ("step\n20\n", "first line"),
        (HEAD + "0,20\n", "line 2 has 2 values for 9 columns"),
        (HEAD + ROW.replace("0.5", "x"), "must be a number, got 'x'"),
        (HEAD + ROW.replace("1.0", "nan"), "cannot be nan"),
        (HEAD + ROW.replace("0.5", "7"), "train_error cannot be 7"),
        (HEAD + ROW + ROW, "line 3: its epoch must be 1"),
        (HEAD + '"' + ROW, "cannot read"),
        ("\udcff", "cannot read"),
    ],
)
def test_metrics_that_do_not_fit(text: str, message: str, copy: Path) -> None:
    (copy / "results.json").unlink()
    (copy / "metrics.csv").write_text(text, errors="surrogateescape")
    with pytest.raises(UserError, match=message) as caught:
        RunFolder(copy).metrics  # noqa: B018
    assert "metrics.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("results.json", "report {run}"),
        ("results.json", "curves {run} --against core-seconds --out {run}/x.png"),
        ("results.json", "train --resume --out {run}"),
        ("run.json", "report {run}"),
        ("metrics.csv", "curves {run} --out {run}/x.png"),
        ("config.json", "evaluate {run}"),
        ("recipe.json", "train --resume --out {run}"),
    ],
)
@pytest.mark.parametrize("text", ["5", "[]", "{}", '{"test": 3}', "\x00", '{"a": ' * 5000])
def test_commands_say_one_line(
    name: str, command: str, text: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "run.json" and text in ("{}", '{"test": 3}'):
        return  # facts may be missing
    (copy / name).write_text(text)
    status = main(command.format(run=copy).split())
    told = capsys.readouterr().err
    assert status == 2
    assert name in told
    assert len(told.splitlines()) == 1, told


def test_runs_of_older_versions_are_read() -> None:
    kept = sorted(path.parent for path in (ROOT / "results").glob("*/*/results.json"))
    assert len(kept) > 50
    for folder in kept:
        run = RunFolder(folder)
        assert run.finished
        assert run.recipe
        assert run.facts
        assert len(run.metrics) == run.results["epochs"]  # type: ignore[index]


def test_weights_that_ship_are_sealed() -> None:
    configs = sorted((ROOT / "src/epitomic/weights").glob("*/config.json"))
    assert configs
    for path in configs:
        assert SEAL in json.loads(path.read_text())
        assert read_sealed(path)["library"] == "epitomic"
