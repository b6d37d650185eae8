"""One image through a network: what each epitomic layer matched, and the image rebuilt from the first one's matches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epitomic.errors import UserError
from epitomic.visualisation.matches import Match, match_layers
from epitomic.visualisation.mosaics import stretch, to_picture
from epitomic.visualisation.reconstruction import Reconstruction, first_match, reconstruct
from epitomic.visualisation.runs import RunView
from epitomic.visualisation.style import (
    LIGHT,
    Picture,
    Theme,
    drawing,
    fit_text,
    new_figure,
    picture_axes,
    place_text,
    show_picture,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CORNERS = np.array([[[37, 99, 201], [24, 150, 120]], [[212, 87, 42], [168, 60, 150]]]) / 255.0  # of the colour key
REBUILT = (1, 4, None)  # matches per patch that are shown
MAPS = 8  # epitomes of each layer that are shown
NAME = 96  # pixels that the name of a class may be wide


@dataclass(frozen=True)
class Explanation:
    """What a network makes of one image.

    Attributes:
        image: As the network was given it, bytes, (C, H, W).
        label: Its class, if it is known.
        probabilities: Of the classes, (classes,).
        matches: Of each epitomic layer; empty if the network has none.
        rebuilt: The image from the first layer's winners; empty if its first layer is not epitomic.
    """

    image: Tensor
    label: int | None
    probabilities: Tensor
    matches: list[Match]
    rebuilt: list[Reconstruction]


def read_image(path: str | Path, channels: int, size: int) -> Tensor:
    """An image file of any size and mode as the network takes it: bytes, (channels, size, size).

    Turned upright, in grey or RGB, on white where it is transparent; its middle square is taken and resized.

    Raises:
        UserError: If it is not an image.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise UserError("reading images needs Pillow: pip install 'epitomic[plots]'") from None
    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file)
            if image.mode.startswith(("I", "F")):  # 16 bits and more a pixel
                values = np.asarray(image, dtype=np.float64)
                top = 65535.0 if image.mode.startswith("I") and values.max() > 255 else max(float(values.max()), 1.0)
                image = Image.fromarray((255 * (values / top).clip(0, 1)).astype(np.uint8))
            if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA"):
                rgba = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
            image = image.convert("L" if channels == 1 else "RGB")
            image = ImageOps.fit(image, (size, size), method=Image.Resampling.BILINEAR)
    except FileNotFoundError:
        raise UserError(f"IMAGE {path} is not there: give an image file, or the number of a test image") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserError(f"IMAGE {path} cannot be read as an image: {error}") from None
    pixels = np.array(image, dtype=np.uint8).reshape(size, size, -1).transpose(2, 0, 1)
    if channels not in (1, 3):
        raise UserError(f"the network takes {channels} channels: an image file has 1 or 3")
    return torch.from_numpy(pixels.copy())


def explain(run: RunView, image: Tensor | str | Path | int) -> Explanation:
    """Runs one image through the network and keeps what was matched.

    Args:
        run: A run with weights.
        image: Bytes (C, H, W), a file, or the number of a test image.
    """
    label = None
    config = run.config or {}
    _ = run.model  # says so if there are no weights
    if isinstance(image, int):
        test = run.test
        if not 0 <= image < len(test):
            raise UserError(
                f"IMAGE must be from 0 to {len(test) - 1} for the test images of {run.dataset}, got {image}"
            )
        pixels, label = test.images[image], int(test.labels[image])
    elif isinstance(image, Tensor):
        pixels = image
    else:
        pixels = read_image(image, int(config["in_channels"]), int(config["image_size"]))
    scores, matches = match_layers(run.model, run.to_input(pixels[None]))
    first = first_match(matches)
    rebuilt = [reconstruct(first, matches=count) for count in REBUILT] if first else []
    return Explanation(pixels, label, scores[0].softmax(0), matches, rebuilt)


def position_colours(pool: tuple[int, int]) -> NDArray[np.float64]:
    """A colour for each position, (D, D, 3): its hue is the direction from the middle, grey in the middle itself."""
    if pool == (2, 2):
        return CORNERS.copy()
    r, c = np.meshgrid(*(np.linspace(-1, 1, d) if d > 1 else np.zeros(1) for d in pool), indexing="ij")
    far = np.maximum(abs(r), abs(c))
    hue = (np.arctan2(r, c) / (2 * np.pi))[..., None] + np.array([0, 1 / 3, 2 / 3])
    wave = 0.5 + 0.5 * np.cos(2 * np.pi * hue)
    return 0.42 + far[..., None] * (wave - 0.5) * 0.8


def position_map(match: Match, channel: int) -> Picture:
    """Where one epitome won, over the image: the colour is the position, the strength the response after the ReLU."""
    response = match.response[0, channel].relu().double().numpy()  # (oh, ow)
    colours = position_colours(match.layer.geometry.pool).reshape(-1, 3)
    rgb = colours[match.positions[0, channel].numpy()]
    alpha = (response / max(float(response.max()), 1e-12)) ** 0.7
    return np.concatenate([rgb, alpha[..., None]], axis=2)


def strongest(match: Match, count: int = MAPS) -> list[int]:
    """The epitomes with the largest sum of responses on the image, in the order of their numbers."""
    total = match.response[0].relu().sum((1, 2))
    return sorted(total.topk(min(count, len(total))).indices.tolist())


def explain_figure(run: RunView, found: Explanation, *, theme: Theme = LIGHT, title: str = "") -> Figure:
    """The image, its class, the image rebuilt, and the maps of winning positions of every epitomic layer."""
    box, gap, left0 = 150, 14, 24
    row_height = 128
    across = left0 * 2 + 132 + MAPS * (92 + 10)
    down = 60 + box + 66 + len(found.matches) * (row_height + 34) + (6 if found.matches else 40)
    with drawing(theme, size=12):
        figure = new_figure(across, down)
        head = fit_text(title or f"{run.model_name} on one image", across - 2 * left0, weight="bold", size=10)
        place_text(figure, left0, 14, head, weight="bold", size=10)
        top = 44
        original = to_picture(found.image.double().numpy() / 255)
        show_picture(figure, original, left0, top, box, box)
        place_text(figure, left0, top + box + 6, _image_caption(run, found), linespacing=1.5)
        left = left0 + box + gap + 8
        for rebuilt in found.rebuilt:
            pixels = run.to_pixels(rebuilt.image)[0].double().numpy()
            show_picture(figure, to_picture(pixels), left, top, box, box)
            name = f"{rebuilt.matches} per patch" if rebuilt.matches else "all, by response"
            kind = "best match" if rebuilt.matches == 1 else "best matches" if rebuilt.matches else "matches"
            place_text(
                figure,
                left,
                top + box + 6,
                f"rebuilt: {kind},\n{name}: error {float(rebuilt.error[0]):.2f}",
                linespacing=1.5,
            )
            left += box + gap
        _probabilities(figure, run, found, left + NAME, top, across - left - NAME - left0 - 30, box, theme)
        if not found.matches:
            text = f"{run.model_name} has no epitomic layer: there are no matches inside epitomes to show."
            place_text(figure, left0, top + box + 62, text, color=theme.muted)
        top += box + 66
        for match in found.matches:
            _layer_row(figure, match, left0, top, theme)
            top += row_height + 34
    return figure


def _image_caption(run: RunView, found: Explanation) -> str:
    size = f"{found.image.shape[2]} × {found.image.shape[1]}"
    if found.label is None:
        return f"the image, {size}"
    return f"the image, {size}\nits class: {fit_text(run.classes[found.label], NAME)}"


def _probabilities(
    figure: Figure, run: RunView, found: Explanation, left: float, top: float, width: float, height: float, theme: Theme
) -> None:
    """The most likely classes, as bars."""
    best = found.probabilities.topk(min(5, len(found.probabilities)))
    axes = picture_axes(figure, left, top, width, height)
    axes.set_axis_on()
    names = [fit_text(run.classes[i], NAME) for i in best.indices.tolist()]
    colours = [theme.series[0] if n == 0 else theme.muted for n in range(len(names))]
    bars = axes.barh(range(len(names)), best.values.tolist(), color=colours, height=0.62)
    axes.bar_label(bars, [f"{100 * v:.1f} %" for v in best.values.tolist()], padding=4, size=8.5)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, 1.3)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _layer_row(figure: Figure, match: Match, left0: float, top: float, theme: Theme) -> None:
    """One layer: its colour key and the maps of its strongest epitomes, under the epitomes if they can be shown."""
    pool, cell = match.layer.geometry.pool, 92
    size = " × ".join(map(str, match.response.shape[1:]))
    text = f"{match.name}: which of the {pool[0]} × {pool[1]} positions won ({size} outputs)"
    place_text(figure, left0, top, text, weight="bold")
    key = np.concatenate([position_colours(pool), np.ones((*pool, 1))], axis=2)
    show_picture(figure, key, left0, top + 28, 66, 66)
    for p in range(pool[0] * pool[1]):
        r, c = divmod(p, pool[1])
        step = 66 / pool[0], 66 / pool[1]
        place_text(
            figure, left0 + (c + 0.5) * step[1], top + 28 + (r + 0.5) * step[0], str(p), ha="center", va="center",
            color="white", size=8,
        )  # fmt: skip
    place_text(figure, left0, top + 100, "position p", color=theme.muted, size=8)
    shown = match.layer.in_channels in (1, 3) and match.layer.geometry.outputs == (1, 1)
    for number, channel in enumerate(strongest(match)):
        left = left0 + 132 + number * (cell + 10)
        axes = show_picture(figure, position_map(match, channel), left, top + 28, cell, cell)
        axes.set_axis_on()
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color(theme.grid)
        place_text(figure, left + 28 * shown, top + 34 + cell, f"epitome {channel}", color=theme.muted, size=8)
        if shown:
            weight = match.layer.weight[channel].detach().double().numpy()
            picture = to_picture(stretch(weight[None], shared=True)[0])
            show_picture(figure, picture, left, top + 32 + cell, 22, 22)
