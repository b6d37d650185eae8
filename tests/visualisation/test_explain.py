"""The picture of one image, for networks of any kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from epitomic.analysis.explanation import explain
from epitomic.analysis.first_layer import read_first_layer
from epitomic.visualisation import explain_figure, open_run
from epitomic.visualisation.explain import position_colours, position_map
from tests.runs import MakeRun


def test_matches_are_those_of_the_layers(folder: Path) -> None:
    run = open_run(folder)
    found = explain(run, 5)
    assert found.label == int(run.test.labels[5])
    assert [m.name for m in found.matches] == [f"features.layer{i}.conv" for i in (1, 2, 3)]
    first = found.matches[0]
    y, positions = first.layer.match(run.to_input(run.test.images[5:6]))
    assert torch.equal(first.positions, positions)
    torch.testing.assert_close(first.response, y.detach())
    assert [r.matches for r in found.rebuilt] == [1, 4, None]
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-5)
    picture = position_map(first, 2)
    colours = position_colours((2, 2)).reshape(-1, 3)
    np.testing.assert_allclose(picture[..., :3], colours[positions[0, 2].numpy()])
    explain_figure(run, found)


def test_the_true_class_is_marked_even_if_it_is_not_likely(folder: Path) -> None:
    run = open_run(folder)
    found = explain(run, 5)
    order = found.probabilities.argsort(descending=True).tolist()
    for label in (order[0], order[-1]):
        told = replace(found, label=label)
        assert (label in told.likely(3), len(told.likely(3))) == (True, 3 if label == order[0] else 4)
        figure = explain_figure(run, told)
        names = [text.get_text() for axes in figure.axes for text in axes.get_yticklabels()]
        assert [name for name in names if name.startswith("✓")] == [f"✓ {run.classes[label]}"]
        assert "✓ true class" in [text.get_text() for text in figure.texts]
    unknown = explain_figure(run, replace(found, label=None))
    assert not [text for axes in unknown.axes for text in axes.get_yticklabels() if "✓" in text.get_text()]
    assert "✓ true class" not in [text.get_text() for text in unknown.texts]


def test_images_are_rebuilt_as_pixels_behind_a_whitening_too(make_run: MakeRun) -> None:
    run = open_run(make_run(whiten=True))
    found = explain(run, 5)
    image = run.test.images[5:6].float() / 255
    assert not torch.allclose(found.matches[0].input, run.to_input(run.test.images[5:6]), atol=0.1)
    torch.testing.assert_close(run.to_pixels(found.matches[0].input), image, atol=0.02, rtol=0)
    assert read_first_layer(run.model).kind == "epitomes"
    explain_figure(run, found)


@pytest.mark.parametrize("model", ["maxpool_small", "maxout_small"])
def test_a_network_without_epitomes_shows_what_applies(model: str, make_run: MakeRun) -> None:
    run = open_run(make_run(model))
    found = explain(run, 0)
    assert found.matches == []
    assert found.rebuilt == []
    texts = [t.get_text() for t in explain_figure(run, found).texts]
    assert any("has no epitomic layer" in text for text in texts)


def test_colours_of_positions_are_all_different() -> None:
    colours = position_colours((3, 3)).reshape(-1, 3)
    distances = np.abs(colours[:, None] - colours[None]).sum(2) + np.eye(9)
    assert distances.min() > 0.15
