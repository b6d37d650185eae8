"""Draws first layers: mosaics of their epitomes (the paper's Fig. 2), and one epitome with its filters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from epitomic.analysis.first_layer import FirstLayer, one_epitome, read_first_layer
from epitomic.support.errors import UserError
from epitomic.training.run_folder import RunFolder
from epitomic.training.run_names import titles
from epitomic.visualisation.style import (
    LIGHT,
    Picture,
    Theme,
    drawing,
    fit_text,
    new_figure,
    place_text,
    show_picture,
    tile,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = NDArray[np.float64]

CONTRASTS = ("each", "shared")
GAP = 1  # weights that fit between two epitomes
SMOOTH = 8  # pixels of a weight in blended pictures
QUANTILE = 0.995  # larger values are shown at full contrast
CAPTION = 330  # pixels that a caption needs
KEY = 90  # pixels of the key of the greys


def mosaic(
    layer: FirstLayer,
    *,
    columns: int | None = None,
    contrast: str = "each",
    colour: bool = True,
    smooth: bool = False,
) -> Picture:
    """Draws all epitomes or filters of a layer in rows, one pixel for each weight: (height, width, 4).

    Zero is mid grey. Colour channels are stretched together, so that hues are true. Gaps are transparent.

    Args:
        layer: The weights to draw.
        columns: Number of epitomes in a row. None makes the picture wider than high.
        contrast: ``"each"`` stretches every epitome from black to white. ``"shared"`` stretches all alike, so that weak
            ones look weak.
        colour: False draws the mean of the channels in grey.
        smooth: Whether neighbouring weights blend into each other, with `SMOOTH` pixels for each weight.
    """
    if contrast not in CONTRASTS:
        raise UserError(f"--contrast must be one of {', '.join(CONTRASTS)}, got {contrast!r}")
    weight = layer.weight
    if layer.centred:
        weight = weight - weight.mean((1, 2, 3, 4), keepdims=True)
    if not colour or weight.shape[2] not in (1, 3):
        weight = weight.mean(2, keepdims=True)
    stretched = stretch(weight, shared=contrast == "shared")
    if smooth:
        stretched = _blend(stretched)
    blocks = []
    for pieces in stretched:
        pictures = [to_picture(piece) for piece in pieces]
        blocks.append(pictures[0] if len(pictures) == 1 else tile(pictures, math.isqrt(len(pictures) - 1) + 1, gap=0))
    return tile(blocks, columns or default_columns(len(blocks)), gap=GAP * (SMOOTH if smooth else 1))


def _blend(values: Values) -> Values:
    """Enlarges (K, pieces, C, V, V) by `SMOOTH`, bicubic."""
    flat = torch.from_numpy(values.copy()).flatten(0, 1)
    larger = F.interpolate(flat, scale_factor=SMOOTH, mode="bicubic", align_corners=False).clamp(0, 1)
    return larger.reshape(*values.shape[:3], *larger.shape[-2:]).numpy()


def stretch(weight: Values, *, shared: bool) -> Values:
    """Stretches weights (K, ...) to the scale of 0 to 1, with zero at one half.

    Args:
        weight: Weights of K epitomes or filters.
        shared: Whether all are stretched alike, instead of each by its own largest values.
    """
    size = np.abs(weight).reshape(1 if shared else len(weight), -1)
    limit = np.quantile(size, QUANTILE, axis=1).reshape(-1, *[1] * (weight.ndim - 1))
    return (0.5 + 0.5 * weight / np.maximum(limit, 1e-12)).clip(0, 1)


def default_columns(count: int) -> int:
    """Number of columns that makes a mosaic wider than high, with full rows if possible.

    >>> [default_columns(n) for n in (96, 48, 3, 100)]
    [12, 8, 3, 10]
    """
    if count <= 6:
        return count
    best = math.sqrt(4 / 3 * count)
    full = [c for c in range(math.isqrt(count), math.ceil(math.sqrt(2 * count)) + 1) if count % c == 0]
    return min(full, key=lambda c: abs(c - best)) if full else math.ceil(best)


def to_picture(values: Values) -> Picture:
    """Turns (1 or 3, height, width) on the scale of 0 to 1 into a picture (height, width, 4)."""
    rgb = np.broadcast_to(values, (3, *values.shape[1:])) if values.shape[0] == 1 else values[:3]
    return np.concatenate([rgb.clip(0, 1).transpose(1, 2, 0), np.ones((*values.shape[1:], 1))], axis=2)


def filters_figure(
    runs: Sequence[RunFolder],
    *,
    contrast: str = "each",
    colour: bool = True,
    smooth: bool = True,
    theme: Theme = LIGHT,
    across: int = 1200,
) -> Figure:
    """Draws the first layers of several runs side by side, all at one scale (the paper's Fig. 2).

    Args:
        runs: Runs with weights.
        contrast: See `mosaic`.
        colour: See `mosaic`.
        smooth: See `mosaic`.
        theme: Colours of the text.
        across: Largest width of the figure in pixels.
    """
    layers = [read_first_layer(run.model) for run in runs]
    fine = SMOOTH if smooth else 1  # pixels of a picture for each weight
    pictures = [mosaic(layer, contrast=contrast, colour=colour, smooth=smooth) for layer in layers]
    captions = []
    for number, (name, layer) in enumerate(zip(titles(runs), layers, strict=True)):
        letter = f"({chr(97 + number % 26)}) " if len(runs) > 1 else ""
        captions.append((f"{letter}{name}", layer.text + (", normalised" if layer.centred else "")))
    per_row = 1 if len(runs) == 1 else 2 if len(runs) in (2, 4) else 3
    rows = [range(first, min(first + per_row, len(runs))) for first in range(0, len(runs), per_row)]
    margin, caption, between = 20, 56, 36
    widest = max(sum(pictures[i].shape[1] for i in row) for row in rows)
    room = across - 2 * margin - between * (max(map(len, rows)) - 1)
    scale = max(1.0, min(14, math.floor(2 * fine * room / widest) / 2)) / fine
    widths = [[max(CAPTION, pictures[i].shape[1] * scale) for i in row] for row in rows]
    heights = [max(pictures[i].shape[0] for i in row) * scale for row in rows]
    total = max(sum(w) + between * (len(w) - 1) for w in widths) + 2 * margin
    with drawing(theme):
        figure = new_figure(total, sum(heights) + caption * len(rows) + 2.2 * margin)
        top = float(margin)
        for row, row_widths, height in zip(rows, widths, heights, strict=True):
            left = (total - sum(row_widths) - between * (len(row) - 1)) / 2
            for index, width in zip(row, row_widths, strict=True):
                picture = pictures[index]
                down, over = picture.shape[0] * scale, picture.shape[1] * scale
                show_picture(figure, picture, left + (width - over) / 2, top + (height - down) / 2, over, down)
                middle = left + width / 2
                name, text = captions[index]
                name = fit_text(name, width + between / 2, weight="bold")
                place_text(figure, middle, top + height + 10, name, ha="center", weight="bold")
                place_text(figure, middle, top + height + 28, text, ha="center", color=theme.muted)
                left += width + between
            top += height + caption
        _draw_key(figure, max(84, (total - KEY) / 2 - 60), top, theme)
    return figure


def epitome_figure(run: RunFolder, number: int, *, colour: bool = True, theme: Theme = LIGHT) -> Figure:
    """Draws one epitome of the first layer, and the D x D filters that it holds.

    Args:
        run: A run with weights whose first layer is epitomic.
        number: Number of the output channel, from 0.
        colour: See `mosaic`.
        theme: Colours of the text.
    """
    epitome = one_epitome(run.model, number)
    weight = epitome.weight - epitome.weight.mean() if epitome.centred else epitome.weight
    if not colour or weight.shape[0] not in (1, 3):
        weight = weight.mean(0, keepdims=True)
    picture = to_picture(stretch(weight[None], shared=True)[0])
    height, width = picture.shape[:2]
    kernel, pool = epitome.kernel, epitome.pool
    cell = max(6, round(300 / height))  # pixels of a weight of the epitome
    small = max(3, round(300 / (pool[0] * (kernel[0] + 2))))  # pixels of a weight of a filter
    first = 24 + width * cell + 50  # left edge of the filters
    with drawing(theme):
        across = first + (kernel[1] * small + 14) * pool[1] + 10
        figure = new_figure(max(across, 560), 66 + max(height * cell, (kernel[0] * small + 24) * pool[0]) + 46)
        place_text(figure, 24, 14, f"epitome {number} of {run.model_name}", weight="bold")
        held = f"{pool[0]} × {pool[1]} overlapping filters of {kernel[0]} × {kernel[1]}"
        text = f"{height} × {width} weights, which hold {held}, one for each position p"
        place_text(figure, 24, 34, text, color=theme.muted)
        show_picture(figure, picture, 24, 66, width * cell, height * cell)
        for p, (top, left) in enumerate(epitome.corners):
            r, c = divmod(p, pool[1])
            x, y = first + c * (kernel[1] * small + 14), 66 + r * (kernel[0] * small + 24)
            place_text(figure, x, y, f"p = {p}", color=theme.muted, size=8)
            part = picture[top : top + kernel[0], left : left + kernel[1]]
            show_picture(figure, part, x, y + 16, kernel[1] * small, kernel[0] * small)
        _draw_key(figure, 24 + 64, 66 + max(height * cell, (kernel[0] * small + 24) * pool[0]) + 16, theme)
    return figure


def _draw_key(figure: Figure, left: float, top: float, theme: Theme) -> None:
    """Draws what the greys of weights mean; the words stand on both sides of the bar."""
    greys = np.ones((1, 64, 4))
    greys[..., :3] = np.linspace(0, 1, 64)[:, None]
    axes = show_picture(figure, greys, left, top, KEY, 10)
    axes.set(xticks=[], yticks=[])
    axes.set_axis_on()
    axes.spines[:].set(visible=True, color=theme.grid)
    place_text(figure, left - 8, top - 2, "negative", ha="right", color=theme.muted, size=8)
    place_text(figure, left + KEY + 8, top - 2, "positive weights; mid grey is zero", color=theme.muted, size=8)
