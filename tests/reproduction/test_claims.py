from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from epitomic.reproduction.claims import Claim, claims_table, final_error, mean_error, mean_excess, rises
from epitomic.support.files import write_json
from epitomic.support.options import to_dict
from epitomic.training.recipes import get_recipe
from epitomic.training.run_folder import METRICS, RECIPE, RESULTS, RunFolder


def make_run(folder: Path, model: str, seed: int, errors: list[float], classes: int = 10) -> RunFolder:
    run = folder / f"{model}-{seed}"
    recipe = get_recipe("digits")
    write_json(run / RECIPE, to_dict(replace(recipe, model=replace(recipe.model, name=model), seed=seed)))
    figures = {"validation_error": 0.1, "best_epoch": 0, "epochs": 1, "parameters": 1, "wall_seconds": 1.0}
    names = {str(number): {"images": 1, "recall": None, "precision": None} for number in range(classes)}
    test = {"images": 10, "errors": 1, "error": errors[-1], "top5": 1 - errors[-1] / 2, "classes": names}
    write_json(run / RESULTS, {**figures, "test": test})
    rows = [f"{epoch},{error},{error / 2}" for epoch, error in enumerate(errors)]
    (run / METRICS).write_text("\n".join(["epoch,val_error,val_top5_error", *rows]) + "\n")
    return RunFolder(run)


def test_measures_by_hand(tmp_path: Path) -> None:
    run = make_run(tmp_path, "epitomic", 0, [0.5, 0.6, 0.25, 0.375])
    assert final_error(run) == 0.375
    assert mean_error(run) == pytest.approx(1.725 / 4)
    assert mean_excess(run) == pytest.approx(1.725 / 4 - 0.375)
    assert rises(run) == pytest.approx(0.1 + 0.125)
    for measure in (final_error, mean_error, mean_excess, rises):
        assert measure(run, 5) == pytest.approx(measure(run) / 2)  # the top-5 errors of this run


def test_verdicts_follow_from_the_interval() -> None:
    low, high, wide = [0.1, 0.11, 0.12], [0.5, 0.51, 0.52], [0.1, 0.5, 0.9]
    lower = Claim("a", "", final_error, "", ())
    assert [lower.verdict(*pair)[1] for pair in ((low, high), (high, low), (low, wide))] == [
        *("confirmed", "refuted", "undecided")
    ]
    assert lower.verdict(low, [0.5]) == ("-39.00", "one seed: no verdict")


def test_hardly_means_less_than_a_point() -> None:
    same = Claim("b", "", final_error, "", (), same=True)
    base = [0.1, 0.1001, 0.1002]
    shifted = {shift: [value + shift for value in base] for shift in (0.0, 0.002, 0.01, 0.05, -0.05)}
    verdicts = [same.verdict(values, base)[1] for values in shifted.values()]
    assert verdicts == ["confirmed", "confirmed", "undecided", "refuted", "refuted"]


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines()[2:]]


def test_a_row_for_each_claim_that_has_runs(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path, model, seed, [0.9, 0.8 - 0.1 * seed]) for model in ("epitomic", "maxpool") for seed in (0, 1)
    ]
    runs.append(RunFolder(tmp_path / "not there"))
    rows = cells(claims_table(runs))
    assert [row[0][:4] for row in rows] == ["(a) ", "(d) "]
    assert all(row[3] == "2 and 2" and row[-1] == "undecided" for row in rows)
    assert cells(claims_table(runs, "d")) == rows[1:]


def test_a_hundred_classes_have_top_5_errors_and_guesses(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, "topographic", seed, [0.9, 0.8 + 0.01 * seed], classes=100) for seed in (0, 1, 2)]
    (row,) = cells(claims_table(runs))
    assert row[1:4] == ["`topographic` against guessing", "10-crop top-5 error", "3"]
    half = 4.302653 * 0.005 / 3**0.5  # Student's t for two degrees of freedom
    assert row[4] == f"-54.50 ({100 * (-0.545 - half):+.2f} to {100 * (-0.545 + half):+.2f})"
    assert row[6] == "refuted"
