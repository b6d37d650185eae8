"""Deeper layers, through the patches of real images that excite their units most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.visualisation.mosaics import to_picture
from epitomic.visualisation.receptive import find_layer, receptive_windows
from epitomic.visualisation.runs import RunView
from epitomic.visualisation.style import LIGHT, Picture, Theme, drawing, new_figure, place_text, show_picture, tile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH = 200
PER_UNIT = 9  # patches, as 3 x 3


@dataclass(frozen=True)
class ExcitingPatches:
    """What excites the units of one layer.

    Attributes:
        name: Of the layer.
        units: Which output channels, (U,).
        patches: Bytes, (U, count, C, size, size), the most exciting first; grey beyond the image's border.
        responses: Of the units to them, (U, count).
        images: Which image each is from, (U, count); no image is there twice for one unit.
    """

    name: str
    units: Tensor
    patches: Tensor
    responses: Tensor
    images: Tensor


@torch.no_grad()
def exciting_patches(
    run: RunView, images: Tensor, layer: str, *, units: int = 24, count: int = PER_UNIT
) -> ExcitingPatches:
    """Finds, for the units that respond most, the patches that they respond to most.

    Args:
        run: A run with weights.
        images: Bytes, (N, C, H, W).
        layer: Its name or its number among the convolutional layers, from 1.
        units: How many of its units.
        count: Patches for each.
    """
    name, module = find_layer(run.model, layer)
    window = receptive_windows(run.model, run.to_input(images[:1]))[name]
    best, where = [], []
    seen: list[Tensor] = []
    hook = module.register_forward_hook(lambda _, __, output: seen.append(output))
    try:
        for batch in images.split(BATCH):
            run.model(run.to_input(batch))
            values, places = seen.pop().flatten(2).max(2)  # (B, K), each image's best place
            best.append(values)
            where.append(places)
        run.model(run.to_input(images[:1]))
        across = seen.pop().shape[-1]
    finally:
        hook.remove()
    values, places = torch.cat(best), torch.cat(where)  # (N, K)
    top, chosen = values.topk(min(count, len(values)), dim=0)  # (count, K)
    kept = top.mean(0).argsort(descending=True)[:units].sort().values
    cut = []
    for unit in kept.tolist():
        at = places[chosen[:, unit], unit]
        cut.append(_cut(images[chosen[:, unit]], at // across, at % across, window.start, window.step, window.size))
    return ExcitingPatches(name, kept, torch.stack(cut), top[:, kept].T, chosen[:, kept].T)


def _cut(images: Tensor, rows: Tensor, columns: Tensor, start: int, step: int, size: int) -> Tensor:
    """The window of each image, (count, C, size, size), mid grey where it leaves the image."""
    padded = F.pad(images.float(), (size,) * 4, value=128.0).to(torch.uint8)
    tops, lefts = (start + rows * step + size).tolist(), (start + columns * step + size).tolist()
    return torch.stack([p[:, t : t + size, s : s + size] for p, t, s in zip(padded, tops, lefts, strict=True)])


def patches_picture(found: ExcitingPatches, columns: int = 8, gap: int = 3, most: int = 36) -> Picture:
    """A 3 x 3 block of patches per unit, blocks in rows; patches of more than ``most`` pixels are shrunk to that."""
    patches = found.patches  # (units, count, C, size, size)
    if patches.shape[-1] > most:
        small = F.interpolate(patches.flatten(0, 1).float(), size=(most, most), mode="area")
        patches = small.round().to(torch.uint8).unflatten(0, patches.shape[:2])
    return tile([_block(unit) for unit in patches], columns, gap=2 * gap)


def patches_figure(found: ExcitingPatches, title: str, theme: Theme = LIGHT) -> Figure:
    """The blocks, each with its unit's number."""
    blocks = [_block(patches) for patches in found.patches]
    height, width = blocks[0].shape[:2]
    scale = max(1, round(150 / width))
    columns, gap, label = min(8, len(blocks)), 14, 18
    rows = -(-len(blocks) // columns)
    with drawing(theme):
        across = max(480, columns * (width * scale + gap) + gap)
        figure = new_figure(across, 58 + rows * (height * scale + gap + label))
        place_text(figure, gap, 12, title, weight="bold")
        place_text(
            figure,
            gap,
            32,
            f"each block: the {found.patches.shape[1]} patches that excite one unit most",
            color=theme.muted,
        )
        for number, block in enumerate(blocks):
            left = gap + number % columns * (width * scale + gap)
            top = 58 + number // columns * (height * scale + gap + label)
            place_text(figure, left, top, f"unit {int(found.units[number])}", size=8, color=theme.muted)
            show_picture(figure, block, left, top + label - 3, width * scale, height * scale)
    return figure


def _block(patches: Tensor) -> Picture:
    pictures = [to_picture(np.asarray(p, dtype=np.float64) / 255) for p in patches]
    return tile(pictures, max(1, round(len(pictures) ** 0.5)), gap=1)
