"""What deeper layers look for: the patches of real images that excite their units most."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.analysis.receptive_fields import Window, find_layer, receptive_windows
from epitomic.support.console import Tell, tell_nobody
from epitomic.training.run_folder import RunFolder

BATCH = 200
PER_UNIT = 9  # patches of each unit, shown as 3 x 3


@dataclass(frozen=True)
class ExcitingPatches:
    """The patches that excite some units of one layer most.

    Attributes:
        name: Name of the layer.
        units: Numbers of the output channels, (U,).
        patches: Patches as bytes, (U, count, C, size, size), the most exciting first. Grey lies outside the image.
        responses: Response of each unit to its patches, (U, count).
        images: Number of the image that each patch is from, (U, count). A unit has at most one patch of an image.
    """

    name: str
    units: Tensor
    patches: Tensor
    responses: Tensor
    images: Tensor


@torch.no_grad()
def exciting_patches(
    run: RunFolder, images: Tensor, layer: str, *, units: int = 24, count: int = PER_UNIT, tell: Tell = tell_nobody
) -> ExcitingPatches:
    """Finds the units with the largest responses, and the patches that they respond to most.

    Args:
        run: A run with weights.
        images: Images as bytes, (N, C, H, W).
        layer: Name of the layer, or its number among the convolutional layers, from 1.
        units: Number of units to find.
        count: Number of patches for each unit.
        tell: Called with the progress.
    """
    name, module = find_layer(run.model, layer)
    window = receptive_windows(run.model, run.to_input(images[:1]))[name]
    best, where = [], []
    outputs: list[Tensor] = []
    hook = module.register_forward_hook(lambda _, __, output: outputs.append(output))
    across = 1
    try:
        for first in range(0, len(images), BATCH):
            tell(f"{run.name}: patches of {name}", first / len(images))
            run.model(run.to_input(images[first : first + BATCH]))
            output = outputs.pop()
            across = output.shape[-1]
            values, places = output.flatten(2).max(2)  # (B, K), the best place in each image
            best.append(values)
            where.append(places)
    finally:
        hook.remove()
    values, places = torch.cat(best), torch.cat(where)  # (N, K)
    top, chosen = values.topk(min(count, len(values)), dim=0)  # (count, K)
    kept = top.mean(0).argsort(descending=True)[:units].sort().values
    cut = []
    for unit in kept.tolist():
        at = places[chosen[:, unit], unit]
        cut.append(_cut(images[chosen[:, unit]], at // across, at % across, window))
    return ExcitingPatches(name, kept, torch.stack(cut), top[:, kept].T, chosen[:, kept].T)


def _cut(images: Tensor, rows: Tensor, columns: Tensor, window: Window) -> Tensor:
    """Cuts the window of one unit from each image, (count, C, size, size); mid grey lies outside the image."""
    size = window.size
    padded = F.pad(images.float(), (size,) * 4, value=128.0).to(torch.uint8)
    tops, lefts = ((window.start + place * window.step + size).tolist() for place in (rows, columns))
    return torch.stack([p[:, t : t + size, s : s + size] for p, t, s in zip(padded, tops, lefts, strict=True)])
