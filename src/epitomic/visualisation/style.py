"""How pictures look and how they are written: colours, text sizes, PNG and SVG.

Sizes and places are in pixels at 100 pixels an inch.
"""

from __future__ import annotations

import base64
import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epitomic.support.errors import UserError
from epitomic.support.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Picture = NDArray[np.float64]  # (height, width, 4), on the scale of 0 to 1

DPI = 200  # PNG files have twice as many pixels as the sizes in this package say
DEAD = (0.84, 0.27, 0.22)  # red, for positions that never win
HEAT = 0.55  # opacity of the strongest cell of a table; its text keeps a contrast above 4.5 in both themes
ACCENT = (0.20, 0.47, 0.85)  # blue that can be seen in both themes


@dataclass(frozen=True)
class Theme:
    """Colours of a picture.

    Attributes:
        surface: Background.
        ink: Text.
        muted: Text and lines of less weight.
        grid: Grid lines.
        series: Colours of the lines in a chart. The first run always has the first colour.
    """

    surface: str
    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]

    def line(self, number: int) -> tuple[str, str]:
        """Colour and style of a line. After the last colour, colours repeat with dashed and then dotted lines."""
        again, colour = divmod(number, len(self.series))
        return self.series[colour], ("-", "--", ":")[again % 3]


LIGHT = Theme(
    surface="#ffffff",
    ink="#1b1f24",
    muted="#5b6570",
    grid="#e3e6ea",
    series=("#2563c9", "#d4572a", "#14866d", "#9a3f93", "#9b7300", "#4f5b66", "#c23a5e", "#3b8ea5"),
)
DARK = Theme(
    surface="#161a20",
    ink="#e8ebef",
    muted="#a3adb8",
    grid="#303741",
    series=("#6ea8ff", "#ff9466", "#4fc9a9", "#d98bd3", "#dcb442", "#b4bfca", "#ff86a4", "#7cc6dc"),
)


@contextlib.contextmanager
def drawing(theme: Theme = LIGHT, size: float = 13.0) -> Iterator[None]:
    """Gives figures that are drawn inside the block these colours and text of ``size`` pixels.

    Raises:
        UserError: If matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise UserError("pictures need matplotlib: pip install 'epitomic[plots]'") from None
    points = 0.72 * size  # a hundredth of an inch is 0.72 points
    colours = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor", "ytick.labelcolor"), theme.ink
    )
    settings: dict[str, Any] = {
        **colours,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "axes.edgecolor": theme.muted,
        "axes.facecolor": "none",
        "figure.facecolor": theme.surface,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": theme.grid,
        "grid.linewidth": 0.8,
        "font.size": points,
        "axes.titlesize": points,
        "axes.labelsize": points,
        "xtick.labelsize": 0.92 * points,
        "ytick.labelsize": 0.92 * points,
        "legend.fontsize": 0.92 * points,
        "legend.frameon": False,
        "text.parse_math": False,  # a dollar in a name is a dollar
        "svg.hashsalt": "epitomic",  # the same picture is the same file
        "figure.dpi": 100,
    }
    with mpl.rc_context(settings):  # type: ignore[arg-type]
        yield


def new_figure(width: float, height: float) -> Figure:
    """Makes an empty figure of this size. It needs no window system, so it works everywhere."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 100, height / 100))


def picture_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Adds axes without ticks. ``left`` and ``top`` are counted from the top left of the figure."""
    across, down = figure.get_size_inches() * 100
    axes = figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))
    axes.set_axis_off()
    return axes


def show_picture(figure: Figure, picture: Picture, left: float, top: float, width: float, height: float) -> Axes:
    """Draws a picture into the figure; each of its pixels becomes a sharp square."""
    axes = picture_axes(figure, left, top, width, height)
    axes.imshow(picture, interpolation="nearest", aspect="auto", vmin=0, vmax=1)
    return axes


def place_text(figure: Figure, left: float, top: float, text: str, **options: Any) -> None:
    """Writes text. ``left`` and ``top`` are counted from the top left of the figure."""
    across, down = figure.get_size_inches() * 100
    options.setdefault("va", "top")
    figure.text(left / across, 1 - top / down, text, **options)


def fit_text(text: str, width: float, **font: Any) -> str:
    """Shortens a text in its middle until it fits, because names differ at their ends.

    Args:
        text: One line of text.
        width: Largest width in pixels.
        **font: Arguments of matplotlib's ``FontProperties``. By default the font is that of `drawing`.
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    properties = FontProperties(**font)
    shown, kept = text, len(text)
    while kept > 2 and text_to_path.get_text_width_height_descent(shown, properties, ismath=False)[0] > 0.72 * width:
        kept -= 1
        shown = f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"
    return shown


def save_figure(figure: Figure, stem: str | Path) -> list[Path]:
    """Writes STEM.png and STEM.svg. ``stem`` may already have one of these endings.

    Raises:
        UserError: If the files cannot be written.
    """
    files = []
    for kind in ("png", "svg"):
        path = Path(f"{str(stem).removesuffix('.png').removesuffix('.svg')}.{kind}")
        contents = encode_figure(figure, kind)
        write_atomically(path, lambda temporary, contents=contents: temporary.write_bytes(contents))  # type: ignore[misc]
        files.append(path)
    return files


def encode_figure(figure: Figure, kind: str) -> bytes:
    """Encodes a figure as PNG or SVG. The same figure gives the same bytes."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "epitomic"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a class name in another script becomes boxes
        figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata, facecolor=figure.get_facecolor())
    return buffer.getvalue()


def enlarge(picture: Picture, factor: int) -> Picture:
    """Repeats each pixel ``factor`` x ``factor`` times."""
    return picture.repeat(factor, 0).repeat(factor, 1)


def encode_picture(picture: Picture) -> bytes:
    """Encodes a picture as PNG. Drops transparency and colour if the picture has none."""
    try:
        from PIL import Image
    except ImportError:
        raise UserError("pictures need matplotlib and Pillow: pip install 'epitomic[plots]'") from None
    pixels = (picture.clip(0, 1) * 255).round().astype(np.uint8)
    image: Any = Image.fromarray(pixels)
    if bool((pixels[..., 3] == 255).all()):
        image = image.convert("RGB")
        if bool((pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 1] == pixels[..., 2]).all()):
            image = image.convert("L")
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def png_address(picture: Picture) -> str:
    """Makes a data: address that holds the picture itself, for a page without other files."""
    return f"data:image/png;base64,{base64.b64encode(encode_picture(picture)).decode('ascii')}"


def svg_address(figure: Figure) -> str:
    """Makes a data: address that holds the figure itself, for a page without other files."""
    return f"data:image/svg+xml;base64,{base64.b64encode(encode_figure(figure, 'svg')).decode('ascii')}"


def tile(pictures: list[Picture], columns: int, gap: int) -> Picture:
    """Puts pictures of one size into rows, with transparent gaps of ``gap`` pixels."""
    height, width = pictures[0].shape[:2]
    rows = -(-len(pictures) // columns)
    canvas = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap, 4))
    for number, picture in enumerate(pictures):
        top, left = (number // columns) * (height + gap), (number % columns) * (width + gap)
        canvas[top : top + height, left : left + width] = picture
    return canvas
