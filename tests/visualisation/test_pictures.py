"""Mosaics, receptive fields, patches, curves, shifts and mistakes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from epitomic.errors import UserError
from epitomic.evaluation import Scores
from epitomic.models import create_model
from epitomic.visualisation import (
    DARK,
    LIGHT,
    confusion_figure,
    curves,
    curves_figure,
    epitome_figure,
    epoch_seconds,
    exciting_patches,
    explain,
    explain_figure,
    filters_figure,
    first_epitomes,
    measure_shifts,
    mosaic,
    open_run,
    patches_figure,
    robustness_figure,
    save_figure,
    worst_mistakes,
)
from epitomic.visualisation.curves import Curve
from epitomic.visualisation.mosaics import SMOOTH
from epitomic.visualisation.receptive import receptive_windows
from epitomic.visualisation.robustness import (
    ShiftRow,
    by_network,
    grouped,
    read_rows,
    robustness_table,
    save_rows,
    shift_images,
    summarize,
)
from epitomic.visualisation.runs import labels, titles
from epitomic.visualisation.style import HEAT, Theme
from epitomic.visualisation.timing import layer_times
from tests.visualisation.conftest import MakeRun

WEIGHTS = (0.2126, 0.7152, 0.0722)  # of red, green and blue in the lightness


@pytest.mark.parametrize(
    ("name", "size", "text"),
    [
        ("epitomic_small", (6, 6), "48 epitomes of 6 × 6, filters of 5 × 5"),
        ("maxpool_small", (5, 5), "48 filters of 5 × 5"),
        ("maxout_small", (10, 10), "48 × 4 maxout filters of 5 × 5"),
        ("maxpool_fast", (2, 2), "24 fixed whitening filters of 2 × 2"),
        ("topographic_small_norm", (12, 12), "3 epitomes of 12 × 12, filters of 5 × 5"),
    ],
)
def test_mosaics_of_all_kinds(name: str, size: tuple[int, int], text: str) -> None:
    found = first_epitomes(create_model(name, in_channels=3))
    assert found.text == text
    columns = 3
    picture = mosaic(found, columns=columns)
    rows = -(-len(found.weight) // columns)
    assert picture.shape == (rows * (size[0] + 1) - 1, columns * (size[1] + 1) - 1, 4)
    assert mosaic(found, columns=columns, smooth=True).shape[1] == SMOOTH * picture.shape[1]
    colours = picture[picture[..., 3] == 1][:, :3]  # without the gaps
    assert 0 <= colours.min() <= 0.1
    assert 0.9 <= colours.max() <= 1


def test_contrast_shows_weak_epitomes_and_keeps_zero_grey() -> None:
    model = create_model("epitomic_small", in_channels=3)
    layer = model.get_submodule("features.layer1.conv")
    with torch.no_grad():
        before = mosaic(first_epitomes(model))
        layer.weight[5] *= 1e-3  # type: ignore[index, operator]
        torch.testing.assert_close(mosaic(first_epitomes(model)), before)
        weak = mosaic(first_epitomes(model), contrast="shared", columns=48)[:, 35:41, :3]
        assert np.abs(weak - 0.5).max() < 0.01
        layer.weight.zero_()  # type: ignore[operator]
    assert np.allclose(mosaic(first_epitomes(model))[..., :3][mosaic(first_epitomes(model))[..., 3] == 1], 0.5)
    grey = mosaic(first_epitomes(model), colour=False)
    assert np.array_equal(grey[..., 0], grey[..., 1])


@pytest.mark.parametrize("name", ["epitomic_small", "maxpool_small", "maxout_small", "topographic_small_norm"])
def test_windows_hold_all_that_a_unit_sees(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, image_size=28, conv_dropout=0.0).double()
    x = torch.randn(1, 1, 28, 28, dtype=torch.float64, requires_grad=True)
    windows = receptive_windows(model, x.detach())
    reached: dict[str, torch.Tensor] = {}
    features = model.get_submodule("features")
    for layer in ("layer1", "layer2", "layer3"):
        y = features[: int(layer[-1])](x)  # type: ignore[index]
        (grad,) = torch.autograd.grad(y[0, :, 1, 1].sum(), x)
        reached[layer] = grad[0, 0].abs().amax(1).nonzero()[:, 0]
    for layer, rows in reached.items():
        last = "pool" if name == "maxpool_small" else "conv"
        window = windows[f"features.{layer}.{last}"]
        first = window.start + window.step
        assert rows.min() >= max(0, first)
        assert rows.max() < first + window.size


def test_patches_that_excite_most_are_found(folder: Path) -> None:
    run = open_run(folder)
    images = run.test.images[:60]
    found = exciting_patches(run, images, "1", units=4, count=5)
    layer = run.model.get_submodule("features.layer1.conv")
    with torch.no_grad():
        best = layer(run.to_input(images)).flatten(2).amax(2)  # (N, K)
    for unit, row, chosen in zip(found.units.tolist(), found.responses, found.images, strict=True):
        expected = best[:, unit].topk(5)
        torch.testing.assert_close(row, expected.values)
        assert set(chosen.tolist()) <= set(range(60))
        assert len(set(chosen.tolist())) == 5
    assert found.patches.shape == (4, 5, 1, 5, 5)
    patches_figure(exciting_patches(run, images, "features.layer2.conv", units=3), "title")
    with pytest.raises(UserError, match="--layer must be from 1 to 3"):
        exciting_patches(run, images, "4")
    with pytest.raises(UserError, match=r"did you mean 'features\.layer2"):
        exciting_patches(run, images, "features.layer2.con")


def test_figures_are_written_the_same_every_time(folder: Path, tmp_path: Path) -> None:
    run = open_run(folder)
    for figure in (filters_figure([run]), filters_figure([run] * 5), epitome_figure(run, 3), curves_figure([run])):
        files = save_figure(figure, tmp_path / "one") + save_figure(figure, tmp_path / "two")
        assert [f.suffix for f in files] == [".png", ".svg", ".png", ".svg"]
        assert files[0].read_bytes() == files[2].read_bytes()
        assert files[1].read_bytes() == files[3].read_bytes()
    with pytest.raises(UserError, match="--epitome must be from 0 to 15"):
        epitome_figure(run, 99)


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


def with_rate(folder: Path, rate: float) -> Path:
    """The run, as if it had been trained at another learning rate."""
    recipe = json.loads((folder / "recipe.json").read_text())
    recipe["optimizer"]["lr"] = rate
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def test_runs_of_different_recipes_are_told_apart(make_run: MakeRun) -> None:
    runs = [make_run(name="one"), with_rate(make_run(name="two"), 0.5), with_rate(make_run(name="two", seed=1), 0.5)]
    views = [open_run(r) for r in runs]
    assert [c.label for c in curves(views)] == ["epitomic_small (one-0)", "epitomic_small (two-0) (2 seeds)"]
    assert titles(views) == [
        "epitomic_small (one-0)",
        "epitomic_small (two-0), seed 0",
        "epitomic_small (two-0), seed 1",
    ]


def test_seeds_of_before_and_after_a_new_setting_are_one_network(make_run: MakeRun) -> None:
    before, after = make_run(name="one"), make_run(name="one", seed=1)
    for folder, change in (
        (before, lambda model: model.pop("whiten")),
        (after, lambda model: model.update(whiten=None)),
    ):
        recipe = json.loads((folder / "recipe.json").read_text())
        change(recipe["model"])
        (folder / "recipe.json").write_text(json.dumps(recipe))
    assert labels([open_run(before), open_run(after)]) == ["epitomic_small", "epitomic_small"]


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
    groups = grouped(views, [measure_shifts(view, most=1, images=10) for view in views])
    assert list(groups) == [f"epitomic_small ({n})" for n in (first, second)]
    assert [len(summarize(rows)[1]) for rows in groups.values()] == [2, 1]  # one mean a run


def test_shifts_move_by_whole_pixels_and_repeat_the_border() -> None:
    x = torch.arange(12).reshape(1, 1, 3, 4)
    assert torch.equal(shift_images(x, 0, 0), x)
    assert shift_images(x, 1, 0)[0, 0].tolist() == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7]]
    assert shift_images(x, 0, -2)[0, 0].tolist() == [[2, 3, 3, 3], [6, 7, 7, 7], [10, 11, 11, 11]]


def test_runs_in_several_folders_are_not_taken_for_seeds() -> None:
    def row(run: str, seed: int) -> ShiftRow:
        return ShiftRow("mnist", "epitomic_small", seed, run, 0, "none", 100, 1, 0.01, 0.0)

    rows = [row("a/small-0", 0), row("a/small-1", 1)]
    assert list(by_network(rows)) == ["epitomic_small"]
    assert "epitomic_small (2 seeds)" in robustness_table(by_network(rows))
    assert list(by_network([*rows, row("b/small-2", 2)])) == ["epitomic_small (a)", "epitomic_small (b)"]
    assert list(by_network([*rows, row("b/small-0", 0)])) == ["epitomic_small (a)", "epitomic_small (b)"]


def test_robustness_is_measured_in_four_directions(folder: Path, tmp_path: Path) -> None:
    run = open_run(folder)
    rows = measure_shifts(run, most=2, images=50)
    assert [(r.shift, r.direction) for r in rows[:3]] == [(0, "none"), (1, "left"), (1, "right")]
    assert len(rows) == 9
    assert rows[0].changed == 0
    test = run.test
    moved = run.to_input(shift_images(test.images[:50], 0, -1))
    with torch.no_grad():
        predicted, plain = (run.model(x).argmax(1) for x in (moved, run.to_input(test.images[:50])))
    assert rows[1].errors == int((predicted != test.labels[:50]).sum())
    assert rows[1].changed == pytest.approx(float((predicted != plain).double().mean()))
    groups = grouped([run], [rows])
    assert summarize(rows)[1] == [pytest.approx(np.mean([r.error for r in rows[1:5]]))]
    assert "epitomic_small" in robustness_table(groups)
    save_rows(rows, tmp_path / "rows.csv")
    assert read_rows(tmp_path / "rows.csv") == rows
    assert len(robustness_figure(groups, size=(360, 560)).axes) == 2
    with pytest.raises(UserError, match="--shifts"):
        measure_shifts(run, most=8)


def test_tables_average_directions_then_seeds() -> None:
    rows = [
        ShiftRow("digits", "m", seed, f"r{seed}", 1, direction, 10, 0, error, 0.0)
        for seed, direction, error in [(0, "left", 0.1), (0, "up", 0.3), (1, "left", 0.5), (1, "up", 0.5)]
    ]
    assert summarize(rows) == {1: [pytest.approx(0.2), pytest.approx(0.5)]}
    assert "35.00 (20.00-50.00)" in robustness_table({"m": rows})


def test_the_worst_mistakes_come_first() -> None:
    scores = Scores(torch.tensor([[0.0, 5.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 0, 0]))
    found = worst_mistakes(scores)
    assert [m.index for m in found] == [0, 1]
    assert found[0].predicted == 1
    assert found[0].label_probability == pytest.approx(1 / (1 + np.exp(5)))
    assert sum(share for _, share in found[0].probabilities) == pytest.approx(1)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_confusion_matrix_shows_counts_and_colours_errors(theme: Theme) -> None:
    figure = confusion_figure([[6, 1, 3], [0, 2, 0], [2, 0, 8]], ["a", "b", "c"], theme=theme, title="t")
    (axes,) = figure.axes
    numbers = {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in axes.texts}
    assert numbers == {(0, 0): "6", (0, 1): "1", (0, 2): "3", (1, 1): "2", (2, 0): "2", (2, 2): "8"}
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a", "b", "c"]
    strengths = np.array([patch.get_alpha() for patch in axes.patches]).reshape(3, 3)
    np.testing.assert_allclose(strengths, HEAT * np.array([[0, 1 / 3, 1], [0, 0, 0], [2 / 3, 0, 0]]) + 0.12 * np.eye(3))
    strongest = to_rgb(theme.series[0]), to_rgb(theme.surface)
    cell = [HEAT * c + (1 - HEAT) * under for c, under in zip(*strongest, strict=True)]
    assert contrast(cell, to_rgb(theme.ink)) > 4.5


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """Of two colours on the scale of 0 to 1, by WCAG 2."""
    levels = [
        sum(
            w * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for w, c in zip(WEIGHTS, rgb, strict=True)
        )
        for rgb in (one, other)
    ]
    return (max(levels) + 0.05) / (min(levels) + 0.05)


def test_names_with_dollars_are_drawn(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    names = [f"price_$5_to_$10_items {i}" for i in range(10)]
    run = replace(open_run(folder), config={**config, "classes": names})
    explain_figure(run, explain(run, 0)).draw_without_rendering()
    confusion_figure([[1] * 10] * 10, names).draw_without_rendering()


def test_long_names_stay_in_their_place(folder: Path, make_run: MakeRun) -> None:
    config = json.loads((folder / "config.json").read_text())
    run = replace(open_run(folder), config={**config, "classes": [f"golden_retriever_puppies {i}" for i in range(10)]})
    figure = explain_figure(run, explain(run, 0))
    figure.draw_without_rendering()
    bars = next(axes for axes in figure.axes if axes.patches)
    pictures = [axes.get_window_extent() for axes in figure.axes if axes.images]
    caption = next(t for t in figure.texts if "its class" in t.get_text())
    for text in (*bars.get_yticklabels(), caption):
        assert not any(text.get_window_extent().overlaps(box) for box in pictures), text.get_text()
        assert re.search("golden.*….* \\d$", text.get_text())
    assert caption.get_window_extent().x1 < pictures[1].x0
    runs = [make_run(name="mnist-epitomic_small-lr0.05-seed3"), make_run(name="mnist-epitomic_small-lr0.50-seed3")]
    figure = filters_figure([open_run(with_rate(r, rate)) for r, rate in zip(runs, (0.1, 0.2), strict=True)])
    one, other = (t.get_window_extent() for t in figure.texts if t.get_text().startswith("("))
    assert not one.overlaps(other)


def test_more_networks_than_colours_have_other_lines() -> None:
    rows = [ShiftRow("digits", "m", 0, "r", shift, "left", 10, 0, 0.1, 0.0) for shift in (0, 1)]
    for axes in robustness_figure({f"m{i}": rows for i in range(len(LIGHT.series) + 2)}).axes:
        assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == len(LIGHT.series) + 2


def test_times_of_layers_leave_the_network_alone(folder: Path) -> None:
    model = open_run(folder).model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    times = layer_times(model, torch.rand(4, 1, 8, 8), repetitions=1)
    leaves = [name for name, module in model.named_modules() if not list(module.children())]
    assert [t.name for t in times] == leaves
    convolutions = [t for t in times if t.type == "EpitomicConv2d"]
    assert len(convolutions) == 3
    assert all(t.forward > 0 and t.backward > 0 for t in convolutions)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
