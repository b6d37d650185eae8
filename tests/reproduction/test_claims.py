from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from epitomic.reproduction.claims import CLAIMS, Claim, claims_table, final_error, mean_error, rises
from epitomic.support.files import write_json
from epitomic.support.options import to_dict
from epitomic.training.recipes import get_recipe
from epitomic.training.run_folder import METRICS, RECIPE, RESULTS, RunFolder


def make_run(folder: Path, model: str, seed: int, errors: list[float]) -> RunFolder:
    run = folder / f"{model}-{seed}"
    recipe = get_recipe("digits")
    write_json(run / RECIPE, to_dict(replace(recipe, model=replace(recipe.model, name=model), seed=seed)))
    figures = {"validation_error": 0.1, "best_epoch": 0, "epochs": 1, "parameters": 1, "wall_seconds": 1.0}
    write_json(run / RESULTS, {**figures, "test": {"images": 10, "errors": 1, "error": errors[-1]}})
    rows = [f"{epoch},{error}" for epoch, error in enumerate(errors)]
    (run / METRICS).write_text("\n".join(["epoch,val_error", *rows]) + "\n")
    return RunFolder(run)


def test_measures_by_hand(tmp_path: Path) -> None:
    run = make_run(tmp_path, "epitomic", 0, [0.5, 0.6, 0.25, 0.375])
    assert final_error(run) == 0.375
    assert mean_error(run) == pytest.approx(1.725 / 4)
    assert rises(run) == pytest.approx(0.1 + 0.125)


def test_verdicts_follow_from_the_interval() -> None:
    low, high, wide = [0.1, 0.11, 0.12], [0.5, 0.51, 0.52], [0.1, 0.5, 0.9]
    lower = Claim("", final_error, "", ())
    assert [lower.verdict(*pair)[1] for pair in ((low, high), (high, low), (low, wide))] == [
        *("confirmed", "refuted", "undecided")
    ]
    assert lower.verdict(low, [0.5]) == ("-39.00", "one seed: no verdict")
    assert Claim("", final_error, "", (), same=True).verdict(low, high)[1] == "refuted"


def test_a_row_for_each_claim_that_has_runs(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path, model, seed, [0.9, 0.8 - 0.1 * seed]) for model in ("epitomic", "maxpool") for seed in (0, 1)
    ]
    runs.append(RunFolder(tmp_path / "not there"))
    rows = claims_table(runs).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [f"| {CLAIMS[0].text}", f"| {CLAIMS[-1].text}"]
    assert all("| 2 and 2 |" in row and row.endswith("| undecided |") for row in rows)
