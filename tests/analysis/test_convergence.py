"""Curves of runs: seeds taken together, and times of epochs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from epitomic.analysis.convergence import Curve, curves, epoch_seconds
from epitomic.support.errors import UserError
from epitomic.training.run_folder import open_run
from epitomic.training.run_names import titles
from tests.runs import MakeRun, with_rate


def test_seeds_become_a_mean_and_a_band(make_run: MakeRun) -> None:
    runs = [open_run(make_run(seed=s)) for s in (0, 1)] + [open_run(make_run("maxpool_small", epochs=5))]
    one, other = curves(runs)
    assert one.label == "epitomic_small (2 seeds)"
    assert other.label == "maxpool_small"
    np.testing.assert_allclose(one.values, [[0.5, 0.25, 0.5 / 3], [0.51, 0.26, 0.5 / 3 + 0.01]])
    np.testing.assert_allclose(one.mean, one.values.mean(0))
    np.testing.assert_allclose(one.band[1], one.values[1])
    np.testing.assert_allclose(epoch_seconds(runs[0]), [3, 6, 9])
    slower = runs[1].folder / "results.json"
    slower.write_text(json.dumps({**json.loads(slower.read_text()), "epoch_seconds": 5.0}))
    timed = curves([runs[0], open_run(runs[1].folder)], against="seconds")
    np.testing.assert_allclose(timed[0].x, [4, 8, 12])  # the mean of 3 and 5 seconds an epoch
    np.testing.assert_allclose(timed[0].values, one.values)
    with pytest.raises(UserError, match="--metric"):
        curves(runs, metric="error")
    assert one.rises == 0
    assert Curve("", np.arange(4.0), np.array([[3, 4, 1, 2], [5, 4, 3, 3.0]])).rises == 1  # (1 + 1 + 0) / 2
    with pytest.raises(UserError, match="has no core seconds"):
        curves(runs, against="core-seconds")
    results = runs[2].folder / "results.json"
    results.write_text(json.dumps({**json.loads(results.read_text()), "cpu_seconds": 30.0, "epochs": 5}))
    (again,) = curves([open_run(runs[2].folder)], against="core-seconds")
    assert again.x.tolist() == [6, 12, 18, 24, 30]


def test_runs_of_different_recipes_are_told_apart(make_run: MakeRun) -> None:
    runs = [make_run(name="one"), with_rate(make_run(name="two"), 0.5), with_rate(make_run(name="two", seed=1), 0.5)]
    views = [open_run(r) for r in runs]
    assert [c.label for c in curves(views)] == ["epitomic_small (one-0)", "epitomic_small (two-0) (2 seeds)"]
    assert titles(views) == [
        "epitomic_small (one-0)",
        "epitomic_small (two-0), seed 0",
        "epitomic_small (two-0), seed 1",
    ]
