"""Measures what a transfer table still lacks, one kind of features of one run at a time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epitomic.analysis.features import Features, compute_features
from epitomic.analysis.transfer import measure_transfer
from epitomic.reproduction.transfer_plans import PlannedFeatures, TransferPlan
from epitomic.reproduction.transfer_table import transfer_table
from epitomic.support.console import Progress, Tell, percent, tell_nobody
from epitomic.support.errors import UserError
from epitomic.support.files import read_sealed, write_sealed, write_text
from epitomic.support.machine import gather_facts
from epitomic.training.run_folder import FEATURES, open_run
from epitomic.training.run_schema import check_transfer

SEED = 0  # of the splits and of the untrained networks


def measure_missing(
    plan: TransferPlan,
    planned: Sequence[PlannedFeatures],
    *,
    images: Path | None,
    kept: Path,
    runs: Path,
    workers: int | None = None,
) -> dict[str, str]:
    """Measures the planned features that have no figures yet. Each result is written as soon as it is there.

    Args:
        plan: Plan of the table.
        planned: Features that the table should have.
        images: Folder of the images; None if all is measured.
        kept: Folder of the figures and of ``table.md``.
        runs: Folder of the run folders, with weights.
        workers: Number of processes that read images.

    Returns:
        Name of each measurement that failed -> the reason.
    """
    missing = {one: lacking for one in planned if (lacking := missing_kernels(plan, one, kept))}
    done, failed = len(planned) - len(missing), dict[str, str]()
    with Progress(len(planned), done=done, stream=sys.stdout) as progress:
        progress.say(f"{plan.title}: {len(planned)} measurements, {done} of them finished")
        for one, kernels in missing.items():
            first = done

            def tell(text: str, share: float, one: PlannedFeatures = one, first: int = first) -> None:
                progress.update(f"{one.name}: {text}", first + share)

            try:
                figures = _measure(plan, one, kernels, Path(images or ""), kept, runs, workers, tell)
            except UserError as error:
                failed[one.name] = f"{error}; `epitomic reproduce {plan.source}` trains it"
                progress.say(f"{one.name}: {failed[one.name]}")
                continue
            done = progress.done = done + 1
            accuracies = ", ".join(f"{kernel} {percent(figure['mean'])}" for kernel, figure in figures.items())
            progress.say(f"{one.name}: {accuracies}; {done} of {len(planned)} are finished")
    return failed


def missing_kernels(plan: TransferPlan, one: PlannedFeatures, kept: Path) -> list[str]:
    """Returns the kernels by which these features are not measured yet."""
    entries = _read(kept / f"{one.run.name}.json").values()
    found = {
        entry["kernel"]
        for entry in entries
        if (entry["features"], entry["train_per_class"], len(entry["accuracies"]))
        == (one.kind, plan.per_class, plan.splits)
    }
    return [kernel for kernel in plan.kernels if kernel not in found]


def _measure(
    plan: TransferPlan,
    one: PlannedFeatures,
    kernels: Sequence[str],
    images: Path,
    kept: Path,
    runs: Path,
    workers: int | None,
    tell: Tell = tell_nobody,
) -> dict[str, dict[str, Any]]:
    """Measures features by several kernels, and adds each figure to the files."""
    folder, facts = runs / one.run.name, gather_facts()
    features: Features = compute_features(
        open_run(folder), images, folder / FEATURES, kind=one.kind, seed=SEED, workers=workers, tell=tell
    )
    figures: dict[str, dict[str, Any]] = {}
    for kernel in kernels:
        figure = measure_transfer(
            features, kernel=kernel, per_class=plan.per_class, splits=plan.splits, seed=SEED, tell=tell
        )
        figures[kernel] = figure
        path, data = kept / f"{one.run.name}.json", images.resolve().name
        key = f"{data} {one.kind} {kernel} {plan.per_class}"
        write_sealed(path, {**_read(path), key: {"data": data, "features": one.kind, **figure, "facts": facts}})
        write_text(kept / "table.md", transfer_table(kept))
    return figures


def _read(path: Path) -> dict[str, Any]:
    return check_transfer(read_sealed(path), path) if path.is_file() else {}
