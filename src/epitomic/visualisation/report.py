"""The report: a page about one run or several, in one file that needs nothing else."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from torch import Tensor, uint8

from epitomic._version import __version__
from epitomic.analysis.copies import BITS, DISTANCE
from epitomic.analysis.data_check import FEW, FEW_SHARE, FEW_TESTED
from epitomic.analysis.findings import Findings, collect
from epitomic.support.console import Tell, duration, percent, tell_nobody, tell_part
from epitomic.support.errors import UserError
from epitomic.support.files import write_text
from epitomic.training.run_folder import RunFolder
from epitomic.visualisation.mosaics import to_picture
from epitomic.visualisation.patches import patches_picture
from epitomic.visualisation.positions import positions_picture
from epitomic.visualisation.sections import MISSING, overview, page_sections, span
from epitomic.visualisation.style import HEAT, Picture, drawing, png_address

# What the section on the data says about its own rules.
LIMITS = {"few": FEW, "few_share": FEW_SHARE, "few_tested": FEW_TESTED, "distance": DISTANCE, "bits": BITS}


def write_report(
    runs: Sequence[RunFolder],
    path: str | Path,
    *,
    images: int = 1000,
    robustness: bool = True,
    tell: Tell = tell_nobody,
) -> list[Findings]:
    """Measures what there is to show of the runs, and writes the page.

    Args:
        runs: One run, or several to compare.
        path: File to write.
        images: Largest number of test images to look at.
        robustness: Whether to measure shifted images, which takes most of the time.
        tell: Called with the progress.

    Returns:
        What was measured of each run, with notes on what is missing.
    """
    if not runs:
        raise UserError("a report needs at least one run")
    if images < 1:
        raise UserError(f"--images must be at least 1, got {images}")
    with drawing():  # raises an error before the work begins if matplotlib is missing
        pass
    reports = [
        collect(run, images=images, robustness=robustness, tell=tell_part(tell, number, len(runs)))
        for number, run in enumerate(runs)
    ]
    tell("drawing", 1)
    write_text(Path(path), render(reports))
    return reports


def render(reports: Sequence[Findings]) -> str:
    """Renders the page. Sections that have nothing to show are left out."""
    pages = Environment(
        loader=PackageLoader("epitomic.visualisation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "duration": duration,
        "percent": percent,
        "png": png_address,
        "pretty_json": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
        "positions_picture": positions_picture,
        "patches_picture": patches_picture,
        "shell": shlex.join,
        "short_name": lambda layer: layer.removeprefix("features."),
        "span": span,
        "tensor_picture": _tensor_picture,
    }
    pages.globals |= {"heat": HEAT, "missing": MISSING, **LIMITS}
    runs = [found.run for found in reports]
    models, sets = (list(dict.fromkeys(names)) for names in ([r.model_name for r in runs], [r.dataset for r in runs]))
    return pages.get_template("report.html").render(
        title=f"{' and '.join(models) if len(models) < 4 else f'{len(models)} networks'} on {', '.join(sets)}",
        version=__version__,
        written=time.strftime("%Y-%m-%d %H:%M"),
        runs=runs,
        notes=[note for found in reports for note in found.notes],
        overview=overview(reports),
        sections=page_sections(reports),
    )


def _tensor_picture(image: Tensor) -> Picture:
    """Turns an image (C, H, W), as bytes or on the scale of 0 to 1, into a picture."""
    return to_picture(image.double().numpy() / (255 if image.dtype == uint8 else 1))
