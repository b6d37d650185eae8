"""What the page shows of one image, as JSON: classes, rebuilt images, and what each layer matched."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from epitomic.analysis.explanation import Explanation
from epitomic.analysis.first_layer import one_epitome
from epitomic.analysis.matches import Match
from epitomic.models.class_names import readable
from epitomic.play.drawing import FILLED
from epitomic.training.run_folder import RunFolder
from epitomic.visualisation.explain import position_colours, position_map
from epitomic.visualisation.mosaics import stretch, to_picture
from epitomic.visualisation.style import png_address

CLASSES = 10  # largest number of classes that are shown
EPITOMES = 8  # largest number of epitomes of a layer that are shown

Json = dict[str, Any]


def describe_network(run: RunFolder) -> Json:
    """What the page says before it has seen an image."""
    config = run.config or {}
    return {
        "name": run.model_name,
        "dataset": run.dataset,
        "classes": readable(run.classes),
        "size": int(config["image_size"]),
        "grey": config["in_channels"] == 1,
        "draw": run.dataset in FILLED and config["in_channels"] == 1,
    }


def describe_explanation(run: RunFolder, found: Explanation) -> Json:
    """What the page shows of one image."""
    names = readable(run.classes)
    best = found.probabilities.topk(min(CLASSES, len(found.probabilities)))
    return {
        "image": _address(found.image.double() / 255),
        "classes": [[names[i], share] for i, share in zip(best.indices.tolist(), best.values.tolist(), strict=True)],
        "rebuilt": [
            {
                "source": rebuilt.source,
                "error": float(rebuilt.error[0]),
                "picture": _address(run.to_pixels(rebuilt.image)[0]),
            }
            for rebuilt in found.rebuilt
        ],
        "layers": [_layer(run, match, sees_image=number == 0) for number, match in enumerate(found.matches)],
    }


def _layer(run: RunFolder, match: Match, *, sees_image: bool) -> Json:
    """One layer: its colour key, and the epitomes that responded most, with a map of their winning positions."""
    g, (_, outputs, rows, columns) = match.layer.geometry, match.response.shape
    sees_image = sees_image and match.layer.in_channels in (1, 3)
    wins = torch.bincount(match.positions.flatten(), minlength=g.pool[0] * g.pool[1]).double()
    colours = (255 * position_colours(g.pool)).round().astype(int).reshape(-1, 3)
    return {
        "name": match.name.removeprefix("features.").removesuffix(".conv"),
        "text": f"{outputs} outputs at {rows} × {columns} places",
        "pool": g.pool,
        "colours": [f"rgb({r} {g} {b})" for r, g, b in colours.tolist()],
        "wins": (wins / wins.sum().clamp(min=1)).tolist(),
        "window": {"size": g.kernel, "stride": g.stride, "padding": g.padding, "input": match.input.shape[2:]}
        if sees_image
        else None,
        "epitomes": [
            {
                "number": channel,
                "map": png_address(position_map(match, channel)),
                **(_epitome(run, match, channel) if sees_image else {}),
            }
            for channel in match.strongest(EPITOMES)
        ],
    }


def _epitome(run: RunFolder, match: Match, channel: int) -> Json:
    """The picture of an epitome of the first layer, and where its filters lie as shares of its height and width."""
    epitome = one_epitome(run.model, channel)
    weight = epitome.weight - epitome.weight.mean() if epitome.centred else epitome.weight
    height, width = weight.shape[1:]
    return {
        "weights": png_address(to_picture(stretch(weight[None], shared=True)[0])),
        "positions": match.positions[0, channel].tolist(),
        "corners": [[top / height, left / width] for top, left in epitome.corners],
        "filter": [epitome.kernel[0] / height, epitome.kernel[1] / width],
    }


def _address(pixels: Tensor) -> str:
    return png_address(to_picture(np.asarray(pixels.clamp(0, 1).double())))
