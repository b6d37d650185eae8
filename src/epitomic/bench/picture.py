"""The benchmark's picture: how many times as fast as the pair, a bar for each layer, algorithm and mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from epitomic.bench.run import Row
from epitomic.visualisation.style import LIGHT, drawing, encode_figure

NAMES = {"native": "native kernel", "winograd": "torch calls only"}  # of algorithms, for who does not know them
FAINT = 0.45  # opacity of the forward passes
BAR = 0.16  # inches


def save_picture(rows: Sequence[Row], path: Path) -> Path:
    """Draws the rows, and writes them to a PNG file; returns it."""
    with drawing():
        figure = Figure(layout="constrained")
        plot(rows, figure)
        path.write_bytes(encode_figure(figure, "png"))
    return path


def plot(rows: Sequence[Row], figure: Figure) -> None:
    """Speed-up over the pair on a figure, whose height it sets; quartiles as whiskers."""
    axes = figure.subplots()
    cases = list(dict.fromkeys(row.case for row in rows))
    algorithms = list(dict.fromkeys((row.algorithm, row.normalize) for row in rows))
    kinds = [(*algorithm, mode) for algorithm in algorithms for mode in ("training", "forward")]
    height = 0.8 / len(kinds)
    for i, (algorithm, normalize, mode) in enumerate(kinds):
        mine = [row for row in rows if (row.algorithm, row.normalize, row.mode) == (algorithm, normalize, mode)]
        at = [cases.index(row.case) + (i - (len(kinds) - 1) / 2) * height for row in mine]
        middle, low, high = zip(*((row.speedup.median, *row.speedup.spread) for row in mine), strict=True)
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
    axes.set_xlim(0, 1.08 * max(row.speedup.spread[1] for row in rows))
    axes.set_xlabel("times as fast as conv2d + max_pool2d (1: as fast) of equal output; quartiles")
    figure.legend(loc="outside upper right", ncols=min(4, len(kinds)))
    figure.set_size_inches(9, 1.1 + (1.25 * BAR * len(kinds)) * len(cases))
