"""Epitomes as pictures: the mosaic of a first layer (the paper's Fig. 2), and one epitome with its filters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from epitomic.errors import UserError
from epitomic.layers import EpitomicConv2d, MaxoutConv2d, NormConv2d
from epitomic.models.whitening import Whitening
from epitomic.visualisation.receptive import convolutional_layers
from epitomic.visualisation.runs import RunView, titles
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

CONTRASTS = ("each", "shared")
GAP = 1  # pixels of an epitome between two of them
SMOOTH = 8  # pixels a weight of blended pictures
QUANTILE = 0.995  # values beyond it are shown at full contrast


@dataclass(frozen=True)
class Epitomes:
    """The first layer of a network, for drawing.

    Attributes:
        kind: ``"epitomes"``, ``"filters"``, ``"maxout filters"`` or ``"fixed whitening filters"``.
        weight: (K, pieces, C, V, V); more than one piece in a maxout layer only.
        filter_size: W.
        centred: Whether the layer is blind to the mean of its filters (Eq. 3), so that the pictures are centred too.
    """

    kind: str
    weight: NDArray[np.float64]
    filter_size: int
    centred: bool

    @property
    def text(self) -> str:
        """How many there are, and their sizes."""
        count, pieces, _, height, width = self.weight.shape
        size = f"{height} × {width}"
        if self.kind == "epitomes":
            some = "1 epitome" if count == 1 else f"{count} epitomes"
            return f"{some} of {size}, filters of {self.filter_size} × {self.filter_size}"
        return f"{count} × {pieces} {self.kind} of {size}" if pieces > 1 else f"{count} {self.kind} of {size}"


def first_epitomes(model: nn.Module) -> Epitomes:
    """The epitomes of the first layer; its filters if it has no epitomes.

    Raises:
        UserError: If there is no convolutional layer.
    """
    layers = convolutional_layers(model)
    if not layers:
        raise UserError("the network has no convolutional layer: there are no filters to show")
    layer = layers[0][1]
    pieces = layer.pieces if isinstance(layer, MaxoutConv2d) else 1
    weight: NDArray[np.float64] = layer.weight.detach().double().cpu().numpy()  # type: ignore[operator]
    weight = weight.reshape(-1, pieces, *weight.shape[1:])
    if isinstance(layer, EpitomicConv2d):
        return Epitomes("epitomes", weight, layer.geometry.kernel[0], layer.normalize)
    kind = "maxout filters" if pieces > 1 else "fixed whitening filters" if isinstance(layer, Whitening) else "filters"
    return Epitomes(kind, weight, weight.shape[-1], isinstance(layer, NormConv2d))


def mosaic(
    epitomes: Epitomes,
    *,
    columns: int | None = None,
    contrast: str = "each",
    colour: bool = True,
    smooth: bool = False,
) -> Picture:
    """The epitomes in rows, one pixel a weight, transparent between them: (height, width, 4).

    Zero is mid grey. Colour channels are stretched together, so that hues are true.

    Args:
        epitomes: What to draw.
        columns: How many in a row; None: about four to three.
        contrast: ``"each"``: every epitome fills the range from black to white; ``"shared"``: one stretch for all, so
            that weak ones look weak.
        colour: False: the mean of the channels, in grey.
        smooth: Neighbouring weights blend into each other, with `SMOOTH` pixels a weight.
    """
    if contrast not in CONTRASTS:
        raise UserError(f"--contrast must be one of {', '.join(CONTRASTS)}, got {contrast!r}")
    weight = epitomes.weight
    if epitomes.centred:
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


def _blend(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K, pieces, C, V, V), `SMOOTH` times as high and wide, bicubic."""
    flat = torch.from_numpy(values.copy()).flatten(0, 1)
    larger = F.interpolate(flat, scale_factor=SMOOTH, mode="bicubic", align_corners=False).clamp(0, 1)
    return larger.reshape(*values.shape[:3], *larger.shape[-2:]).numpy()


def stretch(weight: NDArray[np.float64], *, shared: bool) -> NDArray[np.float64]:
    """Weights (K, ...) to the scale of 0 to 1, zero at one half; by the size of their largest values."""
    size = np.abs(weight).reshape(1 if shared else len(weight), -1)
    limit = np.quantile(size, QUANTILE, axis=1).reshape(-1, *[1] * (weight.ndim - 1))
    return (0.5 + 0.5 * weight / np.maximum(limit, 1e-12)).clip(0, 1)


def default_columns(count: int) -> int:
    """Columns of a mosaic that is wider than high, with full rows where that is possible.

    >>> [default_columns(n) for n in (96, 48, 3, 100)]
    [12, 8, 3, 10]
    """
    if count <= 6:
        return count
    least, most = math.isqrt(count), math.ceil(math.sqrt(2 * count))
    full = [c for c in range(least, most + 1) if count % c == 0]
    return min(full, key=lambda c: abs(c - math.sqrt(4 / 3 * count))) if full else math.ceil(math.sqrt(4 / 3 * count))


def to_picture(values: NDArray[np.float64]) -> Picture:
    """(1 or 3, height, width) on the scale of 0 to 1 -> (height, width, 4)."""
    rgb = np.broadcast_to(values, (3, *values.shape[1:])) if values.shape[0] == 1 else values[:3]
    return np.concatenate([rgb.clip(0, 1).transpose(1, 2, 0), np.ones((*values.shape[1:], 1))], axis=2)


def filters_figure(
    runs: Sequence[RunView],
    *,
    contrast: str = "each",
    colour: bool = True,
    smooth: bool = True,
    theme: Theme = LIGHT,
    across: int = 1200,
) -> Figure:
    """The first layers of several runs side by side, all at one scale (the paper's Fig. 2).

    Args:
        runs: Runs with weights.
        contrast: See `mosaic`.
        colour: See `mosaic`.
        smooth: See `mosaic`.
        theme: Colours of the text.
        across: Pixels that the figure may be wide.
    """
    found = [first_epitomes(run.model) for run in runs]
    fine = SMOOTH if smooth else 1  # pixels of a picture per weight
    pictures = [mosaic(e, contrast=contrast, colour=colour, smooth=smooth) for e in found]
    captions = []
    for number, (name, epitomes) in enumerate(zip(titles(runs), found, strict=True)):
        letter = f"({chr(97 + number % 26)}) " if len(runs) > 1 else ""
        captions.append((f"{letter}{name}", epitomes.text + (", normalised" if epitomes.centred else "")))
    rows = _flow(pictures, per_row=1 if len(runs) == 1 else 2 if len(runs) in (2, 4) else 3)
    margin, caption, between = 20, 56, 36
    widest = max(sum(pictures[i].shape[1] for i in row) for row in rows)
    room = across - 2 * margin - between * (max(map(len, rows)) - 1)
    scale = max(1.0, min(14, math.floor(2 * fine * room / widest) / 2)) / fine
    least = 330  # pixels that a caption needs
    widths = [[max(least, pictures[i].shape[1] * scale) for i in row] for row in rows]
    heights = [max(pictures[i].shape[0] for i in row) * scale for row in rows]
    total = max(sum(w) + between * (len(w) - 1) for w in widths) + 2 * margin
    with drawing(theme):
        figure = new_figure(total, sum(heights) + caption * len(rows) + 1.4 * margin)
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
    return figure


def _flow(pictures: Sequence[Picture], per_row: int) -> list[list[int]]:
    return [list(range(i, min(i + per_row, len(pictures)))) for i in range(0, len(pictures), per_row)]


def epitome_figure(run: RunView, number: int, *, colour: bool = True, theme: Theme = LIGHT) -> Figure:
    """One epitome of the first layer, and the D x D filters that it holds.

    Args:
        run: A run with weights whose first layer is epitomic.
        number: Which of its output channels, from 0.
        colour: See `mosaic`.
        theme: Colours of the text.
    """
    layers = convolutional_layers(run.model)
    layer = layers[0][1] if layers else None
    if not isinstance(layer, EpitomicConv2d):
        raise UserError(
            f"--epitome: the first layer of {run.model_name} has no epitomes; without this option its filters are shown"
        )
    if not 0 <= number < layer.out_channels:
        raise UserError(f"--epitome must be from 0 to {layer.out_channels - 1}, got {number}")
    g = layer.geometry
    outputs = math.prod(g.outputs)
    weight = layer.weight.detach().double().cpu().numpy()[number // outputs]  # (C, V, V)
    row, column = divmod(number % outputs, g.outputs[1])
    top0, left0 = row * g.pool[0] * g.epitome_stride[0], column * g.pool[1] * g.epitome_stride[1]
    part = weight[:, top0 : top0 + g.mini[0], left0 : left0 + g.mini[1]]
    if layer.normalize:
        part = part - part.mean()
    if not colour or part.shape[0] not in (1, 3):
        part = part.mean(0, keepdims=True)
    picture = to_picture(stretch(part[None], shared=True)[0])
    cell = max(6, round(300 / picture.shape[0]))
    small = max(3, round(300 / (g.pool[0] * (g.kernel[0] + 2))))
    with drawing(theme):
        grid = (g.kernel[0] * small + 24) * g.pool[0]
        big = picture.shape[0] * cell
        across = 24 + picture.shape[1] * cell + 50 + (g.kernel[1] * small + 14) * g.pool[1] + 10
        figure = new_figure(max(across, 560), 66 + max(big, grid) + 20)
        place_text(figure, 24, 14, f"epitome {number} of {run.model_name}", weight="bold")
        size = f"{g.mini[0]} × {g.mini[1]}"
        held = f"{g.pool[0]} × {g.pool[1]} filters of {g.kernel[0]} × {g.kernel[1]}"
        sub = f"{size}, and its {held}, numbered by position p"
        place_text(figure, 24, 34, sub, color=theme.muted)
        show_picture(figure, picture, 24, 66, picture.shape[1] * cell, big)
        for p in range(math.prod(g.pool)):
            r, c = divmod(p, g.pool[1])
            t, s = r * g.epitome_stride[0], c * g.epitome_stride[1]
            left = 24 + picture.shape[1] * cell + 50 + c * (g.kernel[1] * small + 14)
            top = 66 + r * (g.kernel[0] * small + 24)
            place_text(figure, left, top, f"p = {p}", color=theme.muted, size=8)
            filter_picture = picture[t : t + g.kernel[0], s : s + g.kernel[1]]
            show_picture(figure, filter_picture, left, top + 16, g.kernel[1] * small, g.kernel[0] * small)
    return figure
