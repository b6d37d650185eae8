"""The report: one page on one run or several, in one file that needs nothing else."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from string import Template

from epitomic._version import __version__
from epitomic.errors import UserError
from epitomic.files import write_text
from epitomic.visualisation import sections
from epitomic.visualisation.collect import RunReport, collect
from epitomic.visualisation.html import escape
from epitomic.visualisation.runs import RunView
from epitomic.visualisation.style import drawing

NAME = "report.html"
SECTIONS = (
    sections.convergence,
    sections.epitomes,
    sections.positions,
    sections.matches,
    sections.robustness,
    sections.classes,
    sections.mistakes,
    sections.times,
    sections.facts,
)


def write_report(
    runs: Sequence[RunView],
    path: str | Path,
    *,
    images: int = 1000,
    robustness: bool = True,
    progress: Callable[[str], object] | None = None,
) -> list[RunReport]:
    """Collects what there is to show of the runs and writes the page.

    Args:
        runs: One run, or several to compare.
        path: The file.
        images: Test images to look at, at most.
        robustness: Whether to measure the error against shifts, which takes most of the time.
        progress: Is told what is being done.

    Returns:
        What was collected, with notes on what is missing.
    """
    if not runs:
        raise UserError("a report needs at least one run")
    if images < 1:
        raise UserError(f"--images must be at least 1, got {images}")
    with drawing():  # says so if matplotlib is missing, before the work
        pass
    reports = [collect(run, images=images, robustness=robustness, progress=progress) for run in runs]
    if progress:
        progress("drawing")
    write_text(Path(path), render(reports))
    return reports


def render(reports: Sequence[RunReport]) -> str:
    """The page as text."""
    runs = [report.run for report in reports]
    models, sets = (list(dict.fromkeys(names)) for names in ([r.model_name for r in runs], [r.dataset for r in runs]))
    title = f"{' and '.join(models) if len(models) < 4 else f'{len(models)} networks'} on {', '.join(sets)}"
    written = time.strftime("%Y-%m-%d %H:%M")
    folders = ", ".join(run.name for run in runs)
    body = "".join(draw(reports) for draw in SECTIONS)
    found = re.findall(r'<section id="([a-z]+)">', body)
    files = resources.files("epitomic.visualisation")
    return Template(files.joinpath("report.html").read_text(encoding="utf-8")).substitute(
        version=escape(__version__),
        title=escape(title),
        subtitle=escape(f"{len(runs)} runs: {folders}" if len(runs) > 1 else f"run {folders}, page of {written}"),
        style=files.joinpath("report.css").read_text(encoding="utf-8"),
        top=sections.overview(reports),
        links="".join(f'<a href="#{key}">{key.capitalize()}</a>' for key in found),
        sections=body,
        footer=escape(
            f"epitomic {__version__}, written {written} by: epitomic report {' '.join(str(r.folder) for r in runs)}"
        ),
    )
