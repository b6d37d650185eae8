"""Draws the benchmark: one bar per layer, algorithm and mode. Its length is the speed-up over conv2d + max_pool2d."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from epitomic.bench.cases import FUSED
from epitomic.bench.contest import LayerResult
from epitomic.visualisation.style import LIGHT, drawing, encode_figure

NAMES = {
    "auto": "epitomic",
    "native": "native kernel",
    "winograd": "torch calls only",
    FUSED: "our conv + max-pool",
}  # algorithm -> its name for newcomers
FAINT = 0.45  # opacity of the bars of forward passes
BAR = 0.16  # height of a bar in inches


def save_picture(results: Sequence[LayerResult], path: Path) -> None:
    """Draws the results and writes them to a PNG file."""
    with drawing():
        figure = Figure(layout="constrained")
        draw_speedups(results, figure)
        path.write_bytes(encode_figure(figure, "png"))


def draw_speedups(results: Sequence[LayerResult], figure: Figure) -> None:
    """Draws bars with the quartiles as whiskers, and sets the height of the figure. Leaves out bfloat16."""
    results = [r for r in results if r.dtype == "float32"]
    axes = figure.subplots()
    cases = list(dict.fromkeys(r.case for r in results))
    algorithms = list(dict.fromkeys((r.algorithm, r.normalize) for r in results))
    kinds = [(*algorithm, mode) for algorithm in algorithms for mode in ("training", "forward")]
    height = 0.8 / len(kinds)
    for i, (algorithm, normalize, mode) in enumerate(kinds):
        shown = [r for r in results if (r.algorithm, r.normalize, r.mode) == (algorithm, normalize, mode)]
        at = [cases.index(r.case) + (i - (len(kinds) - 1) / 2) * height for r in shown]
        middle, low, high = zip(*((r.speedup.median, *r.speedup.quartiles) for r in shown), strict=True)
        colour = LIGHT.series[algorithms.index((algorithm, normalize)) % len(LIGHT.series)]
        opacity = FAINT if mode == "forward" else 1.0
        label = f"{NAMES.get(algorithm, algorithm)}{' + norm' if normalize else ''}, {mode}"
        axes.barh(at, middle, 0.86 * height, color=colour, alpha=opacity, label=label)
        axes.hlines(at, low, high, color=LIGHT.ink, linewidth=0.9)
        for y, end, value in zip(at, high, middle, strict=True):
            axes.annotate(f"{value:.1f}", (end, y), (4, 0), textcoords="offset points", va="center", fontsize="small")
    axes.axvline(1, color=LIGHT.ink, linewidth=0.9)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(cases)), [f"{case.name}\n{case.text()}" for case in cases])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.set_xlim(0, 1.08 * max(r.speedup.quartiles[1] for r in results))
    axes.set_xlabel("speed-up over conv2d + max_pool2d of equal output (1: equally fast); lines: quartiles")
    figure.legend(loc="outside upper right", ncols=min(4, len(kinds)))
    figure.set_size_inches(9, 1.1 + (1.25 * BAR * len(kinds)) * len(cases))
