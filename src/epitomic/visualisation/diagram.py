"""Diagrams of the idea, drawn with a real digit and real weights: the pictures of docs/what-is-an-epitome.md.

All but the topographic one show the same example: one patch of a handwritten zero and one epitome of the network that
ships for MNIST. Dashed blue marks what is searched. Orange marks what searches it, and where it fits best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from epitomic.analysis.matches import Match, epitomic_layers, match_layers
from epitomic.analysis.robustness import shift_images
from epitomic.data.small.sets import load_set
from epitomic.support.errors import UserError
from epitomic.training.run_folder import open_run
from epitomic.visualisation.explain import position_colours, position_map
from epitomic.visualisation.mosaics import to_picture
from epitomic.visualisation.style import LIGHT, drawing, new_figure, place_text, show_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = NDArray[np.float64]

WEIGHTS = "epitomic_small-mnist"  # 5 x 5 filters, 2 x 2 of them in each epitome of 6 x 6
PLACES = [(0, 0), (0, 1), (1, 0), (1, 1)]  # row and column of each filter in an epitome
DIGIT = 265  # number of the zero among the test digits of scikit-learn
EPITOME = 17  # number of the epitome in the first layer; it holds an edge
UNIT = (5, 8)  # row and column of the output whose patch is shown

WIDTH, TEXT, LINE = 800, 20.0, 28  # pixels; shown half as wide on a phone, the text is still 10 pixels high
SEARCHED, BEST, OTHER = LIGHT.series[0], LIGHT.series[1], LIGHT.muted


@dataclass(frozen=True)
class Example:
    """One patch of a digit, and one epitome with its filters.

    Attributes:
        image: The standardised digit, (28, 28).
        match: What the first layer matched; its response is what the ReLU gets.
        epitome: The weights of the epitome, (6, 6).
        filters: The filters that the epitome holds, (4, 5, 5).
        row: First row of the patch.
        column: First column of the patch.
    """

    image: Values
    match: Match
    epitome: Values
    filters: Values
    row: int
    column: int

    @property
    def responses(self) -> Values:
        """Inner product of the patch and each filter, (4,): the values that Eq. 2 takes the maximum of."""
        return np.einsum("prc,rc->p", self.filters, cut(self.image, self.row, self.column))


def cut(values: Values, row: int, column: int, size: int = 5) -> Values:
    """A square part of an array."""
    return values[row : row + size, column : column + size]


def open_example(right: int = 0) -> Example:
    """Makes the example, with the digit moved to the right by some pixels."""
    run = open_run(WEIGHTS)
    digit = load_set("digits").test.images[DIGIT : DIGIT + 1].float()  # (1, 1, 8, 8)
    large = F.interpolate(digit, scale_factor=2.5, mode="bicubic").clamp(0, 255).round().byte()
    x = run.to_input(shift_images(F.pad(large, (4,) * 4), 0, right))  # (1, 1, 28, 28): sizes as in MNIST
    _, (match, *_) = match_layers(run.model, x)
    match = replace(match, response=run.model.get_submodule("features.layer1.norm")(match.response).detach())
    layer = match.layer
    filters, epitome = _array(layer.filters()[EPITOME, :, 0]), _array(layer.weight[EPITOME, 0])
    row, column = (s * u - p for s, u, p in zip(layer.stride, UNIT, layer.padding, strict=True))
    return Example(_array(x[0, 0]), match, epitome, filters, row, column)


def idea_figure() -> Figure:
    """Draws max-pooling beside epitomic convolution, after the paper's Figure 1."""
    example = open_example()
    row, column, sought = example.row, example.column, example.filters[0]
    pooled = np.array([(cut(example.image, row + r, column + c) * sought).sum() for r, c in PLACES])  # Eq. 1
    down, over = PLACES[pooled.argmax()]
    with drawing(LIGHT, TEXT):
        figure = new_figure(WIDTH, 560)
        _heading(figure, 20, "Convolution + max-pooling", "Each filter searches\na window of the image.")
        axes = _digit(figure, example, 20)
        _mark(axes, row, column, 6, SEARCHED, dashed=True)
        _mark(axes, row + down, column + over, 5, BEST)
        _mark(_greys(figure, _weights(sought), 270, 134, 20), 0, 0, 5, BEST)
        _lines(figure, 196, 328, "window 6 × 6", ha="right", color=SEARCHED)
        _lines(figure, 320, 264, "filter\n5 × 5", ha="center", color=BEST)
        _lines(figure, 234, 206, "←", ha="center", size=28)
        _lines(figure, 20, 380, "The filter at its 4 places:", color=OTHER)
        _places(figure, cut(_pixels(example), row, column, 6), pooled, 20)
        _heading(figure, 420, "Epitomic convolution", "Each image patch searches\nan epitome.")
        _search(figure, example, 420)
    return figure


def filters_figure() -> Figure:
    """Draws an epitome and the overlapping filters that it holds."""
    epitome = _weights(open_example().epitome)
    with drawing(LIGHT, TEXT):
        figure = new_figure(WIDTH, 490)
        _heading(figure, 20, "One epitome holds 2 × 2 overlapping filters")
        _mark(_greys(figure, epitome, 20, 66, 52), 1, 1, 4, SEARCHED, dashed=True)
        text = "An epitome: 6 × 6 weights.\nAll four filters share the 4 × 4\nweights in the dashed frame."
        _lines(figure, 20, 412, text)
        for place, (row, column) in enumerate(PLACES):
            left, top = 452 + 180 * column, 66 + 172 * row
            _mark(_greys(figure, epitome, left, top, 23, keep=(row, column)), row, column, 5, BEST)
            _lines(figure, left - 12, top + 76, str(place), ha="right", color=OTHER)
        _lines(figure, 424, 412, "Its four filters: 5 × 5 weights,\none pixel apart. The number\nis their position p.")
    return figure


def match_figure() -> Figure:
    """Draws the products of one patch with the filters of an epitome, and their sums."""
    example = open_example()
    products = example.filters * cut(example.image, example.row, example.column)
    with drawing(LIGHT, TEXT):
        figure = new_figure(WIDTH, 620)
        _heading(figure, 20, "One patch, four filters, one output")
        for base, text in ((134, "patch"), (274, "× filter p"), (414, "= products"), (510, "their sum")):
            _lines(figure, 20, base, text)
        for place, response in enumerate(example.responses):
            left = 196 + 152 * place
            _greys(figure, cut(_pixels(example), example.row, example.column), left, 66, 24)
            axes = _greys(figure, _weights(example.filters)[place], left, 206, 24)
            _greys(figure, _weights(products)[place], left, 346, 24)
            _lines(figure, left - 10, 274, str(place), ha="right", color=OTHER)
            if _response(figure, left + 60, 510, response, example.responses.max()):
                _mark(axes, 0, 0, 5, BEST)
        _lines(figure, 20, 582, "Filters and products: grey is zero, white is positive.", color=OTHER)
    return figure


def positions_figure() -> Figure:
    """Draws which filter of one epitome wins at each place of a digit."""
    example = open_example()
    with drawing(LIGHT, TEXT):
        figure = new_figure(WIDTH, 550)
        _heading(figure, 20, "Which filter of the epitome wins, patch by patch")
        _greys(figure, _pixels(example), 20, 60, 13)
        _mark(show_picture(figure, position_map(example.match, EPITOME), 416, 60, 364, 364), 0, 0, 14, OTHER)
        for place, colour in enumerate(position_colours((2, 2)).reshape(-1, 3)):
            left = 20 + 194 * place
            _mark(_greys(figure, _weights(example.filters)[place], left, 448, 16), 0, 0, 5, colour)
            _lines(figure, left + 94, 496, f"p = {place}", color=colour, weight="bold")
    return figure


def shift_figure() -> Figure:
    """Draws the search of one patch before and after the digit moves by a pixel."""
    before, after = open_example(), open_example(right=1)
    first, fixed = before.responses.max(), after.responses[before.responses.argmax()]
    with drawing(LIGHT, TEXT):
        figure = new_figure(WIDTH, 620)
        _heading(figure, 20, "A digit", "One patch of the image\nsearches the epitome.")
        _search(figure, before, 20)
        _heading(figure, 420, "The digit moved right by a pixel", "The same patch searches\nthe same epitome.")
        _search(figure, after, 420)
        text = f"Another filter wins, and the output hardly changes: {first:.2f}, then {after.responses.max():.2f}."
        _lines(figure, 20, 572, f"{text}\nThe first winner alone would fall from {first:.2f} to {fixed:.2f}.")
    return figure


def topographic_figure(name: str) -> Figure:
    """Draws a large epitome of a run's first layer, and the outputs that it gives.

    Args:
        name: Folder of a run whose network has a topographic first layer.
    """
    run = open_run(name)
    layer = next((layer for _, layer in epitomic_layers(run.model)), None)
    if layer is None or min(layer.geometry.outputs) < 3:
        raise UserError(
            f"--run {name}: the first layer of {run.model_name} is not topographic, as it is after "
            "`epitomic train digits --model topographic_small_norm`"
        )
    g, epitome = layer.geometry, _array(layer.weight[1 % len(layer.weight)].mean(0))
    outputs, step = 0.82 + 0.1 * (np.indices(g.outputs).sum(0) % 2), g.pool[0] * g.epitome_stride[0]
    with drawing(LIGHT, TEXT):
        figure = new_figure(WIDTH, 530)
        _heading(figure, 20, "A topographic epitome gives many outputs")
        axes = _greys(figure, _weights(epitome), 20, 66, 360 / len(epitome))
        map_axes = _greys(figure, outputs, 450, 66, 280 / len(outputs))
        for column, colour in ((1, SEARCHED), (2, BEST)):
            _mark(axes, step, column * step, g.mini[0], colour, dashed=colour == SEARCHED)
            _mark(map_axes, 1, column, 1, colour, dashed=colour == SEARCHED)
        rows, columns = g.outputs
        size, filters = f"{g.epitome[0]} × {g.epitome[1]}", f"{g.pool[0]} × {g.pool[1]} filters"
        _lines(figure, 20, 452, f"An epitome: {size} weights.\nNeighbouring outputs search\noverlapping parts of it.")
        _lines(figure, 450, 374, f"Its {rows} × {columns} outputs. Each is\nthe best of {filters}.")
    return figure


DIAGRAMS: dict[str, Callable[[], Figure]] = {
    "idea": idea_figure,
    "filters": filters_figure,
    "match": match_figure,
    "positions": positions_figure,
    "shift": shift_figure,
}


def _search(figure: Figure, example: Example, left: float) -> None:
    """The digit with the patch, the epitome that the patch searches, and the responses at all places."""
    epitome, best = _weights(example.epitome), PLACES[example.responses.argmax()]
    _mark(_digit(figure, example, left), example.row, example.column, 5, BEST)
    axes = _greys(figure, epitome, left + 236, 134, 20)
    _mark(axes, 0, 0, 6, SEARCHED, dashed=True)
    _mark(axes, *best, 5, BEST)
    _lines(figure, left + 176, 328, "patch 5 × 5", ha="right", color=BEST)
    _lines(figure, left + 296, 284, "epitome\n6 × 6", ha="center", color=SEARCHED)
    _lines(figure, left + 206, 206, "→", ha="center", size=28)
    _lines(figure, left, 380, "The patch at its 4 places:", color=OTHER)
    _places(figure, epitome, example.responses, left)


def _places(figure: Figure, searched: Values, responses: Values, left: float) -> None:
    """What is searched, once for each place, with the response there; the best place is marked."""
    for (row, column), response in zip(PLACES, responses, strict=True):
        axes = _greys(figure, searched, left, 396, 13, keep=(row, column))
        best = _response(figure, left + 39, 502, response, responses.max())
        _mark(axes, row, column, 5, BEST if best else OTHER)
        left += 93


def _response(figure: Figure, middle: float, base: float, response: float, largest: float) -> bool:
    """Writes a response, and says whether it is the largest one."""
    text = f"{response:.2f}".replace("-", "\N{MINUS SIGN}")
    best = response == largest
    style = {"color": BEST, "weight": "bold"} if best else {}
    _lines(figure, middle, base, f"{text}\noutput" if best else text, ha="center", **style)
    return best


def _heading(figure: Figure, left: float, title: str, text: str = "") -> None:
    _lines(figure, left, 36, title, weight="bold")
    _lines(figure, left, 68, text)


def _lines(figure: Figure, left: float, base: float, text: str, **options: Any) -> None:
    """Lines of text; the first one stands at ``base``."""
    for number, line in enumerate(text.split("\n")):
        place_text(figure, left, base + LINE * number, line, va="baseline", **options)


def _digit(figure: Figure, example: Example, left: float) -> Axes:
    """The digit, without three empty pixels on each side; the axes count the pixels of the whole image."""
    axes = _greys(figure, _pixels(example)[3:-3, 3:-3], left, 126, 8)
    axes.images[0].set_extent((2.5, 24.5, 24.5, 2.5))
    return axes


def _pixels(example: Example) -> Values:
    """The image from 0, its darkest pixel, to 1, its brightest."""
    return (example.image - example.image.min()) / np.ptp(example.image)


def _weights(values: Values) -> Values:
    """Weights from 0 to 1, so that zero becomes a half."""
    return 0.5 + 0.5 * values / np.abs(values).max()


def _greys(
    figure: Figure, values: Values, left: float, top: float, cell: float, keep: tuple[int, int] | None = None
) -> Axes:
    """Values from 0 to 1 as grey cells; all but a filter at ``keep`` are pale."""
    picture = to_picture(values[None])
    if keep:
        picture[..., 3] = 0.3
        cut(picture, *keep)[..., 3] = 1
    return show_picture(figure, picture, left, top, cell * values.shape[1], cell * values.shape[0])


def _mark(axes: Axes, row: int, column: int, size: int, colour: Any, *, dashed: bool = False) -> None:
    """A frame around ``size`` x ``size`` cells, on a white line that sets it off from the picture."""
    from matplotlib.patches import Rectangle

    for wide, paint, style in ((4.4, "white", "-"), (2.4, colour, (0, (2.4, 1.2)) if dashed else "-")):
        frame = Rectangle((column - 0.5, row - 0.5), size, size, fill=False, joinstyle="miter", clip_on=False)
        frame.set(edgecolor=paint, linewidth=wide, linestyle=style)
        axes.add_patch(frame)


def _array(values: Tensor) -> Values:
    return values.detach().double().numpy()
