"""Draws what a network makes of one image: its classes, the image rebuilt, and what each epitomic layer matched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epitomic.analysis.explanation import Explanation
from epitomic.analysis.matches import Match
from epitomic.support.console import percent
from epitomic.training.run_folder import RunFolder
from epitomic.visualisation.mosaics import stretch, to_picture
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

CORNERS = np.array([[[37, 99, 201], [24, 150, 120]], [[212, 87, 42], [168, 60, 150]]]) / 255.0  # colours of 2 x 2
STRENGTH = 0.7  # power of the response that gives the opacity of a map
TRUE = 2  # number of the colour that marks the true class
MAPS = 8  # largest number of epitomes of a layer that are shown
LIKELY = 5  # classes that are shown
NAME = 96  # pixels for the name of a class
MARGIN, BOX, GAP = 24, 150, 14  # pixels around the figure, of an image, and between images
MAP, KEY = 92, 66  # pixels of a map and of the colour key
LAYER = 162  # pixels from one layer to the next


def position_colours(pool: tuple[int, int]) -> NDArray[np.float64]:
    """A colour for each position, (D, D, 3). Its hue is the direction from the middle, which is grey."""
    if pool == (2, 2):
        return CORNERS.copy()
    r, c = np.meshgrid(*(np.linspace(-1, 1, d) if d > 1 else np.zeros(1) for d in pool), indexing="ij")
    far = np.maximum(abs(r), abs(c))
    hue = (np.arctan2(r, c) / (2 * np.pi))[..., None] + np.array([0, 1 / 3, 2 / 3])
    wave = 0.5 + 0.5 * np.cos(2 * np.pi * hue)
    return 0.42 + far[..., None] * (wave - 0.5) * 0.8


def position_map(match: Match, channel: int) -> Picture:
    """Draws where one epitome won: the colour is the winning position, its strength the response after the ReLU."""
    response = match.response[0, channel].relu().double().numpy()  # (oh, ow)
    colours = position_colours(match.layer.geometry.pool).reshape(-1, 3)
    rgb = colours[match.positions[0, channel].numpy()]
    alpha = (response / max(float(response.max()), 1e-12)) ** STRENGTH
    return np.concatenate([rgb, alpha[..., None]], axis=2)


def explain_figure(run: RunFolder, found: Explanation, *, theme: Theme = LIGHT, title: str = "") -> Figure:
    """Draws the image, its classes, the image rebuilt, and maps of the winning positions of every epitomic layer.

    Args:
        run: The run that the explanation is from.
        found: What the network makes of the image.
        theme: Colours.
        title: Text above the picture; by default the name of the network.
    """
    across = MARGIN * 2 + 132 + MAPS * (MAP + 10)
    down = 60 + BOX + 66 + len(found.matches) * LAYER + (6 if found.matches else 40)
    with drawing(theme, size=12):
        figure = new_figure(across, down)
        head = fit_text(title or f"{run.model_name} on one image", across - 2 * MARGIN, weight="bold", size=10)
        place_text(figure, MARGIN, 14, head, weight="bold", size=10)
        top, left = 44, MARGIN + BOX + GAP + 8
        show_picture(figure, to_picture(found.image.double().numpy() / 255), MARGIN, top, BOX, BOX)
        place_text(figure, MARGIN, top + BOX + 6, _image_caption(run, found), linespacing=1.5)
        for rebuilt in found.rebuilt:
            pixels = run.to_pixels(rebuilt.image)[0].double().numpy()
            show_picture(figure, to_picture(pixels), left, top, BOX, BOX)
            source = {1: "1 match", None: "all matches"}.get(rebuilt.matches, f"{rebuilt.matches} matches")
            text = f"rebuilt from {source}\nrelative error {float(rebuilt.error[0]):.2f}"
            place_text(figure, left, top + BOX + 6, text, linespacing=1.5)
            left += BOX + GAP
        _draw_classes(figure, run, found, left + NAME, top, across - left - NAME - MARGIN - 30, theme)
        if not found.matches:
            text = f"{run.model_name} has no epitomic layer, so there are no matches to show."
            place_text(figure, MARGIN, top + BOX + 62, text, color=theme.muted)
        for number, match in enumerate(found.matches):
            _draw_layer(figure, match, top + BOX + 66 + number * LAYER, theme)
    return figure


def _image_caption(run: RunFolder, found: Explanation) -> str:
    size = f"{found.image.shape[2]} × {found.image.shape[1]}"
    if found.label is None:
        return f"the image, {size}"
    return f"the image, {size}\ntrue class: {fit_text(run.class_names[found.label], NAME - 10)}"


def _draw_classes(
    figure: Figure, run: RunFolder, found: Explanation, left: float, top: float, width: float, theme: Theme
) -> None:
    """Draws the most likely classes as bars, and marks the true class, which is always among them."""
    from matplotlib.colors import to_rgb

    shown = found.likely(LIKELY)
    shares = found.probabilities[shown].tolist()
    names = [fit_text(run.class_names[i], NAME - 14 * (i == found.label)) for i in shown]
    axes = picture_axes(figure, left, top, width, BOX)
    axes.set_axis_on()
    colours = [theme.series[TRUE if i == found.label else 0] for i in shown]
    bars = axes.barh(range(len(names)), shares, color=colours, height=0.62)
    axes.bar_label(bars, [percent(share, 1) for share in shares], padding=4, size=8.5)
    marked = [f"✓ {name}" if i == found.label else name for i, name in zip(shown, names, strict=True)]
    axes.set_yticks(range(len(names)), marked)
    if found.label is not None:
        for row, (series, text) in enumerate(((TRUE, "✓ true class"), (0, "other classes"))):
            down = top + BOX + 8 + 18 * row
            show_picture(figure, np.array([[(*to_rgb(theme.series[series]), 1.0)]]), left, down, 10, 10)
            place_text(figure, left + 16, down - 2, text, color=theme.muted, size=8)
    axes.set_xlim(0, 1.3)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_layer(figure: Figure, match: Match, top: float, theme: Theme) -> None:
    """Draws a colour key and the maps of the strongest epitomes, with the epitomes themselves if they are images."""
    pool = match.layer.geometry.pool
    outputs = " × ".join(map(str, match.response.shape[1:]))
    text = f"{match.name}: the colour shows which of the {pool[0]} × {pool[1]} positions won ({outputs} outputs)"
    place_text(figure, MARGIN, top, text, weight="bold")
    key = np.concatenate([position_colours(pool), np.ones((*pool, 1))], axis=2)
    show_picture(figure, key, MARGIN, top + 28, KEY, KEY)
    for (r, c), p in np.ndenumerate(np.arange(pool[0] * pool[1]).reshape(pool)):
        x, y = MARGIN + (c + 0.5) * KEY / pool[1], top + 28 + (r + 0.5) * KEY / pool[0]
        place_text(figure, x, y, str(p), ha="center", va="center", color="white", size=8)
    place_text(figure, MARGIN, top + 98, "position p", color=theme.muted, size=8)
    strength = np.full((1, 32, 4), 0.4)
    strength[..., 3] = np.linspace(0, 1, 32) ** STRENGTH
    show_picture(figure, strength, MARGIN, top + 117, KEY, 9)
    place_text(figure, MARGIN, top + 130, "response: 0 to largest", color=theme.muted, size=8)
    shown = match.layer.in_channels in (1, 3) and match.layer.geometry.outputs == (1, 1)
    for number, channel in enumerate(match.strongest(MAPS)):
        left = MARGIN + 132 + number * (MAP + 10)
        axes = show_picture(figure, position_map(match, channel), left, top + 28, MAP, MAP)
        axes.set(xticks=[], yticks=[])
        axes.set_axis_on()
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color(theme.grid)
        place_text(figure, left + 28 * shown, top + 34 + MAP, f"epitome {channel}", color=theme.muted, size=8)
        if shown:
            weight = match.layer.weight[channel].detach().double().numpy()
            show_picture(figure, to_picture(stretch(weight[None], shared=True)[0]), left, top + 32 + MAP, 22, 22)
