"""The data that the templates of the report show: one entry for each section that has something to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from epitomic.analysis.convergence import METRICS, curves
from epitomic.analysis.error_rates import are_uneven, class_errors, mean_class_error, wilson
from epitomic.analysis.findings import Findings
from epitomic.analysis.first_layer import read_first_layer
from epitomic.analysis.mistakes import confused_pairs, hardest_classes
from epitomic.analysis.robustness import Spread, spread_by_shift
from epitomic.analysis.robustness_table import group_runs
from epitomic.evaluation import OTHER_WAYS
from epitomic.support.console import duration, percent
from epitomic.training.run_names import titles
from epitomic.visualisation.confusion import LEGIBLE
from epitomic.visualisation.curves import curves_figure
from epitomic.visualisation.mosaics import mosaic
from epitomic.visualisation.robustness import robustness_figure
from epitomic.visualisation.style import DARK, LIGHT, Theme, svg_address

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Data = dict[str, Any]
Size = tuple[int, int]
Card = tuple[str, Findings]  # title, which is empty if there is one run alone

NO_BREAK = "\u00a0"  # a space that ends no line
MISSING = "-"

MANY_CLASSES = 10  # with more, the top-5 error says something
FEW_ROWS, MANY_ROWS = 10, 20  # confusions that are listed beside a matrix, and without one
NARROW = 12  # classes whose numbers fit into a matrix on a phone
SHORT_NAME = 4  # letters of a name that stands upright above its column
MENDING = ("curves", "classes", "mistakes", "data", "learning")  # first in the report of a user's own images
TEN_CROPS = "10 crops"  # how photographs are tested at the end of a training


def page_sections(reports: Sequence[Findings]) -> dict[str, Any]:
    """Name of each section, which is also the name of its template, and its data."""
    names = titles([found.run for found in reports]) if len(reports) > 1 else [""]
    cards = list(zip(names, reports, strict=True))
    sections = {
        "curves": _curves(reports),
        "epitomes": _epitomes(cards),
        "positions": [card for card in cards if card[1].positions],
        "matches": [card for card in cards if card[1].originals is not None],
        "robustness": _robustness(reports),
        "classes": _classes(cards),
        "data": _data(cards),
        "learning": [card for card in cards if card[1].learning],
        "mistakes": [card for card in cards if card[1].mistaken is not None],
        "time": [card for card in cards if card[1].times],
        "facts": cards,
    }
    if all((found.run.config or {}).get("own") for found in reports):
        sections = {name: sections[name] for name in (*MENDING, *sections)}
    return {name: data for name, data in sections.items() if data}


def overview(reports: Sequence[Findings]) -> list[Data]:
    """The main figures of each run; None where a figure is not known."""
    runs = [found.run for found in reports]
    return [{"title": title, **_main_figures(found)} for title, found in zip(titles(runs), reports, strict=True)]


def _main_figures(found: Findings) -> Data:
    run = found.run
    results = run.results or {}
    best = results.get("validation_error")  # at the epoch whose weights are kept
    if best is None:
        best = min((row["val_error"] for row in run.metrics if "val_error" in row), default=None)
    epochs = f"{len(run.metrics)}" + ("" if run.finished else f" of {run.recipe.get('epochs', '?')}")
    seconds = results.get("wall_seconds")
    images = run.metrics[-1].get("step", 0) * float(run.recipe.get("batch_size", 0)) if run.metrics else 0
    others = (f"{name}: {percent(results[way]['error'])}" for way, name in OTHER_WAYS.items() if way in results)
    test = results.get("test", {})
    counts = test.get("top5") is not None and len(test.get("classes", ())) > MANY_CLASSES
    return {
        "images": run.dataset,
        "seed": str(run.seed),
        "test_error": percent(results["test"]["error"]) if "test" in results else None,
        **_interval(results.get("test")),
        "way": TEN_CROPS if "center" in results else None,
        "top5_error": percent(1 - test["top5"]) if counts else None,
        "other_test_error": ", ".join(others),  # without averaging over views or crops
        "validation_error": None if best is None else percent(best),
        "epochs": epochs if run.recipe else None,
        "parameters": f"{results['parameters']:,}" if "parameters" in results else None,
        "time": duration(seconds) if seconds else None,
        "speed": f"{images / seconds:,.0f}" if seconds and images else None,
    }


def _interval(figures: Data | None) -> Data:
    """The 95 % interval of the test error; and the mean error over classes, where classes are uneven."""
    if figures is None:
        return {"interval": None, "class_error": None}
    low, high = wilson(figures["errors"], figures["images"])
    sizes = [row["images"] for row in figures["classes"].values()]
    return {
        "interval": f"{100 * low:.2f} to {percent(high)}".replace(" %", f"{NO_BREAK}%"),
        "class_error": percent(mean_class_error(figures)) if are_uneven(sizes) else None,
    }


def _curves(reports: Sequence[Findings]) -> Data:
    runs = [found.run for found in reports if found.run.metrics]
    if not runs:
        return {}
    return {
        "ends": [(curve.label, float(curve.mean[-1])) for curve in curves(runs)],
        "chart": _chart(lambda theme, size: curves_figure(runs, theme=theme, size=size), narrow=(360, 300)),
        "metrics": METRICS,
        "last": [(title, run.metrics[-1]) for title, run in zip(titles(runs), runs, strict=True)],
    }


def _chart(draw: Callable[[Theme, Size], Figure], *, narrow: Size, wide: Size = (1100, 400)) -> list[tuple[str, str]]:
    """Draws a chart in four versions, each with the media query that chooses it.

    Args:
        draw: Draws the figure in a theme and a size in pixels.
        narrow: Size on phones, where the text must not shrink.
        wide: Size on wide screens.
    """
    return [
        (f"(prefers-color-scheme: {scheme}) and {width}", svg_address(draw(theme, size)))
        for theme, scheme in ((DARK, "dark"), (LIGHT, "light"))
        for size, width in ((narrow, "(max-width: 640px)"), (wide, "(min-width: 640.02px)"))
    ]


def _epitomes(cards: Sequence[Card]) -> list[Data]:
    """The first layers at one scale, and the patches that excite deeper layers."""
    shown = [(title, found) for title, found in cards if found.run.config is not None]
    layers = [read_first_layer(found.run.model) for _, found in shown]
    pictures = [mosaic(layer, smooth=True) for layer in layers]
    widest = max((picture.shape[1] for picture in pictures), default=1)
    opened = 1 if len(cards) == 1 else 0  # number of deeper layers that are shown without a click
    return [
        {
            "title": title,
            "name": title or found.run.model_name,
            "layer": layer,
            "mosaic": picture,
            "width": f"{100 * picture.shape[1] / widest:.2f}%",
            "opened": found.patches[:opened],
            "closed": found.patches[opened:],
        }
        for (title, found), layer, picture in zip(shown, layers, pictures, strict=True)
    ]


def _robustness(reports: Sequence[Findings]) -> Data:
    shown = [found for found in reports if found.shifts]
    if not shown:
        return {}
    groups = group_runs([found.run for found in shown], [found.shifts for found in shown])
    errors = {name: spread_by_shift(rows) for name, rows in groups.items()}
    shifts = sorted({shift for values in errors.values() for shift in values})  # small images are shifted less
    rows = []
    for name, measured in groups.items():
        for what in ("error", "changed"):
            values = spread_by_shift(measured, what)
            cells = (_spread(values[s]) if s in values else MISSING for s in shifts)
            rows.append((f"{name}, {what}", *cells))
    return {
        "images": span(found.shifts[0].images for found in shown),
        "ends": [(name, values[max(values)].mean, max(values)) for name, values in errors.items()],
        "seeds": any(len({row.run for row in rows}) > 1 for rows in groups.values()),
        "chart": _chart(lambda theme, size: robustness_figure(groups, theme=theme, size=size), narrow=(360, 560)),
        "head": ("pixels", *map(str, shifts)),
        "rows": rows,
    }


def _spread(found: Spread) -> str:
    return f"{percent(found.mean, 1)} ({100 * found.low:.1f} to {100 * found.high:.1f})"


def span(counts: Iterable[int]) -> str:
    """A number that may differ from run to run.

    >>> span([500, 500]), span([500, 60])
    ('500', '60 to 500')
    """
    found = sorted(counts)
    return f"{found[0]}" if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def _classes(cards: Sequence[Card]) -> list[Data]:
    """Confusion matrices of few classes, the hardest of many classes, and the most frequent confusions."""
    shown = []
    for title, found in cards:
        matrix = found.confusion or []
        names = found.run.class_names or tuple(map(str, range(len(matrix))))
        legible = len(names) <= LEGIBLE
        pairs = confused_pairs(matrix, FEW_ROWS if legible else MANY_ROWS)
        if pairs or (legible and matrix):
            shown.append(
                {
                    "title": title,
                    "names": names,
                    "matrix": matrix if legible else [],
                    "many": len(names) > NARROW,  # on a phone, such a matrix has colours alone
                    "tall": max(map(len, names)) > SHORT_NAME,
                    "largest": pairs[0][2] if pairs else 1,
                    "pairs": [(names[i], names[j], _share(count, sum(matrix[i]))) for i, j, count in pairs],
                    "hardest": [] if legible else [_hard_row(names, matrix[i], i) for i in hardest_classes(matrix)],
                }
            )
    return shown


def _share(count: int, images: int) -> str:
    return f"{count} of {images}".replace(" ", NO_BREAK)


def _hard_row(names: Sequence[str], counts: Sequence[int], label: int) -> tuple[str, ...]:
    """A class of the confusion matrix: its name, its errors with the 95 % interval, and its most frequent confusion."""
    images, errors = sum(counts), sum(counts) - counts[label]
    low, high = wilson(errors, images)
    likeliest = max((other for other in range(len(counts)) if other != label), key=lambda other: counts[other])
    error = f"{percent(errors / images, 0)} ({100 * low:.0f} to {percent(high, 0)})"
    return names[label], error, f"{names[likeliest]} ({counts[likeliest]})"


def _data(cards: Sequence[Card]) -> list[Data]:
    """Classes with too few images, and near-copies across splits."""
    return [
        {
            "title": title,
            "check": found.data,
            "names": found.run.class_names,
            "few": [_few_row(found, i) for i in found.data.few],
            "bad": sorted((found.run.results or {}).get("bad_images", {}).items()),
            "middle": f"{median(found.data.training):g}",
        }
        for title, found in cards
        if found.data is not None
    ]


def _few_row(found: Findings, label: int) -> tuple[str, ...]:
    """A class with too few images: its name, its images, and its test error with the 95 % interval."""
    assert found.data is not None
    name, error = found.run.classes[label], MISSING
    counted = class_errors((found.run.results or {}).get("test", {"classes": {}})).get(name)
    if counted is not None and counted[1]:
        low, high = wilson(*counted)
        error = f"{percent(counted[0] / counted[1], 0)} ({100 * low:.0f} to {percent(high, 0)})"
    return found.run.class_names[label], str(found.data.training[label]), str(found.data.tested[label]), error
