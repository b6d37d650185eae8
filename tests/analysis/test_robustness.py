"""Shifted images: how they are moved, measured and put into a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from epitomic.analysis.error_rates import wilson
from epitomic.analysis.robustness import (
    ShiftRow,
    Spread,
    mean_by_shift,
    measure_shifts,
    shift_images,
    spread_by_shift,
)
from epitomic.analysis.robustness_table import brackets, group_rows, group_runs, read_rows, robustness_table, save_rows
from epitomic.support.errors import UserError
from epitomic.training.run_folder import open_run
from epitomic.training.run_names import labels, titles
from epitomic.visualisation.curves import BAND
from epitomic.visualisation.robustness import INTERVAL, robustness_figure
from tests.runs import MakeRun, with_rate


def test_folders_of_one_name_are_told_apart_by_their_parents(make_run: MakeRun) -> None:
    runs = [make_run(name="same"), with_rate(make_run(name="same"), 0.5), make_run(name="same")]
    first, second, again = (f"{r.parent.name}/{r.name}" for r in runs)
    views = [open_run(r) for r in runs]
    assert labels(views) == [f"epitomic_small ({n})" for n in (first, second, first)]
    assert titles(views) == [
        f"epitomic_small ({first}), seed 0 ({first})",
        f"epitomic_small ({second})",
        f"epitomic_small ({first}), seed 0 ({again})",
    ]
    groups = group_runs(views, [measure_shifts(view, maximum=1, images=10) for view in views])
    assert list(groups) == [f"epitomic_small ({n})" for n in (first, second)]
    assert [len(mean_by_shift(rows)[1]) for rows in groups.values()] == [2, 1]  # one mean a run


def test_shifts_move_by_whole_pixels_and_repeat_the_border() -> None:
    x = torch.arange(12).reshape(1, 1, 3, 4)
    assert torch.equal(shift_images(x, 0, 0), x)
    assert shift_images(x, 1, 0)[0, 0].tolist() == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7]]
    assert shift_images(x, 0, -2)[0, 0].tolist() == [[2, 3, 3, 3], [6, 7, 7, 7], [10, 11, 11, 11]]


def test_runs_in_several_folders_are_not_taken_for_seeds() -> None:
    def row(run: str, seed: int) -> ShiftRow:
        return ShiftRow("mnist", "epitomic_small", seed, run, 0, "none", 100, 1, 0.01, 0.0)

    rows = [row("a/small-0", 0), row("a/small-1", 1)]
    assert list(group_rows(rows)) == ["epitomic_small"]
    assert "epitomic_small (2 seeds)" in robustness_table(group_rows(rows))
    assert list(group_rows([*rows, row("b/small-2", 2)])) == ["epitomic_small (a)", "epitomic_small (b)"]
    assert list(group_rows([*rows, row("b/small-0", 0)])) == ["epitomic_small (a)", "epitomic_small (b)"]


def test_robustness_is_measured_in_four_directions(folder: Path, tmp_path: Path) -> None:
    run = open_run(folder)
    rows = measure_shifts(run, maximum=2, images=50)
    assert [(r.shift, r.direction) for r in rows[:3]] == [(0, "none"), (1, "left"), (1, "right")]
    assert len(rows) == 9
    assert rows[0].changed == 0
    test = run.test
    moved = run.to_input(shift_images(test.images[:50], 0, -1))
    with torch.no_grad():
        predicted, plain = (run.model(x).argmax(1) for x in (moved, run.to_input(test.images[:50])))
    assert rows[1].errors == int((predicted != test.labels[:50]).sum())
    assert rows[1].changed == pytest.approx(float((predicted != plain).double().mean()))
    groups = group_runs([run], [rows])
    assert mean_by_shift(rows)[1] == [pytest.approx(np.mean([r.error for r in rows[1:5]]))]
    assert "epitomic_small" in robustness_table(groups)
    save_rows(rows, tmp_path / "rows.csv")
    assert read_rows(tmp_path / "rows.csv") == rows
    with pytest.raises(UserError, match="--shifts"):
        measure_shifts(run, maximum=8)


def test_one_run_has_an_interval_and_several_have_their_range() -> None:
    rows = [
        ShiftRow("digits", "m", seed, f"r{seed}", shift, way, 100, 0, 0.1 + 0.1 * seed, 0.3 * shift)
        for seed in (0, 1)
        for shift, ways in ((0, ("none",)), (1, ("left", "up")))
        for way in ways
    ]
    assert spread_by_shift(rows)[1] == Spread((0.1 + 0.2) / 2, 0.1, 0.2)
    one = [row for row in rows if row.seed == 0]
    assert spread_by_shift(one)[1] == Spread(0.1, *wilson(10, 100))  # of 100 images, not of 200 views
    assert spread_by_shift(one, "changed")[0] == Spread(0, 0, 0)
    assert spread_by_shift(one, "changed")[1] == Spread(0.3, *wilson(30, 100))
    assert "10.00 (5.52-17.44)" in robustness_table({"m": one})
    assert brackets({"m": rows}) == "the lowest and the highest seed in brackets"
    mixed = "the 95 % interval of one seed, or the lowest and the highest seed, in brackets"
    assert brackets({"m": rows, "n": one}) == mixed
    for groups, meaning in (({"m": rows}, BAND), ({"m": one}, INTERVAL), ({"m": rows, "n": one}, BAND)):
        axes = robustness_figure(groups).axes[0]
        legend = axes.get_legend()
        assert legend is not None
        assert (legend.get_title().get_text(), len(axes.collections)) == (meaning, 1)


def test_shifts_may_have_steps(folder: Path) -> None:
    rows = measure_shifts(open_run(folder), maximum=5, step=2, images=5)
    assert sorted({row.shift for row in rows}) == [0, 2, 4]


def test_tables_average_directions_then_seeds() -> None:
    rows = [
        ShiftRow("digits", "m", seed, f"r{seed}", 1, direction, 10, 0, error, 0.0)
        for seed, direction, error in [(0, "left", 0.1), (0, "up", 0.3), (1, "left", 0.5), (1, "up", 0.5)]
    ]
    assert mean_by_shift(rows) == {1: [pytest.approx(0.2), pytest.approx(0.5)]}
    assert "35.00 (20.00-50.00)" in robustness_table({"m": rows})
