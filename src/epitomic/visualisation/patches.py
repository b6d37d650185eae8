"""Draws the patches that excite the units of a layer most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.analysis.patches import ExcitingPatches
from epitomic.visualisation.mosaics import to_picture
from epitomic.visualisation.style import (
    LIGHT,
    Picture,
    Theme,
    drawing,
    enlarge,
    new_figure,
    place_text,
    show_picture,
    tile,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEAD = 80  # pixels above the blocks
SMALLEST, LARGEST = 48, 36  # pixels: small patches are enlarged towards the first, large ones shrunk to the second


def patches_picture(found: ExcitingPatches) -> Picture:
    """Draws a block of patches for each unit, with four blocks in a row."""
    patches = found.patches  # (units, count, C, size, size)
    size = patches.shape[-1]
    if size > LARGEST:
        small = F.interpolate(patches.flatten(0, 1).float(), size=(LARGEST, LARGEST), mode="area")
        patches = small.round().to(torch.uint8).unflatten(0, patches.shape[:2])
    return enlarge(tile([_block(unit) for unit in patches], columns=4, gap=6), max(1, SMALLEST // size))


def patches_figure(found: ExcitingPatches, title: str, theme: Theme = LIGHT) -> Figure:
    """Draws a block of patches for each unit, with the unit's number."""
    blocks = [_block(patches) for patches in found.patches]
    height, width = blocks[0].shape[:2]
    scale = max(1, round(150 / width))
    columns, gap, label = min(8, len(blocks)), 14, 18
    rows = -(-len(blocks) // columns)
    with drawing(theme):
        across = max(480, columns * (width * scale + gap) + gap)
        figure = new_figure(across, HEAD + rows * (height * scale + gap + label))
        place_text(figure, gap, 12, title, weight="bold")
        text = f"Each block shows the {found.patches.shape[1]} patches that excite one unit most."
        place_text(figure, gap, 32, f"{text}\nPlain grey lies outside the image.", color=theme.muted)
        for number, block in enumerate(blocks):
            left = gap + number % columns * (width * scale + gap)
            top = HEAD + number // columns * (height * scale + gap + label)
            place_text(figure, left, top, f"unit {int(found.units[number])}", size=8, color=theme.muted)
            show_picture(figure, block, left, top + label - 3, width * scale, height * scale)
    return figure


def _block(patches: Tensor) -> Picture:
    pictures = [to_picture(np.asarray(p, dtype=np.float64) / 255) for p in patches]
    return tile(pictures, max(1, round(len(pictures) ** 0.5)), gap=1)
