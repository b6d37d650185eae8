"""Names that are long or odd are still drawn in their place."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

from epitomic.analysis.explanation import explain
from epitomic.visualisation import confusion_figure, explain_figure, filters_figure, open_run
from tests.runs import MakeRun, with_rate


def test_names_with_dollars_are_drawn(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    names = [f"price_$5_to_$10_items {i}" for i in range(10)]
    run = open_run(folder)
    run.config = {**config, "classes": names}
    explain_figure(run, explain(run, 0)).draw_without_rendering()
    confusion_figure([[1] * 10] * 10, names).draw_without_rendering()


def test_long_names_stay_in_their_place(folder: Path, make_run: MakeRun) -> None:
    config = json.loads((folder / "config.json").read_text())
    run = open_run(folder)
    run.config = {**config, "classes": [f"golden_retriever_puppies {i}" for i in range(10)]}
    figure = explain_figure(run, explain(run, 0))
    figure.draw_without_rendering()
    bars = next(axes for axes in figure.axes if axes.patches)
    pictures = [axes.get_window_extent() for axes in figure.axes if axes.images]
    caption = next(t for t in figure.texts if "true class" in t.get_text())
    for text in (*bars.get_yticklabels(), caption):
        assert not any(text.get_window_extent().overlaps(box) for box in pictures), text.get_text()
        assert re.search("golden.*….* \\d$", text.get_text())
    assert caption.get_window_extent().x1 < pictures[1].x0
    captions = [t.get_window_extent() for t in figure.texts if t.get_text().startswith("rebuilt from")]
    assert len(captions) == 3
    assert all(one.x1 < other.x0 for one, other in pairwise(captions))
    runs = [make_run(name="mnist-epitomic_small-lr0.05-seed3"), make_run(name="mnist-epitomic_small-lr0.50-seed3")]
    figure = filters_figure([open_run(with_rate(r, rate)) for r, rate in zip(runs, (0.1, 0.2), strict=True)])
    one, other = (t.get_window_extent() for t in figure.texts if t.get_text().startswith("("))
    assert not one.overlaps(other)
