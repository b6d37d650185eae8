"""The plans of the transfer tables: which trained networks, on which images.

They stand in for Table 5 of the paper. Each takes the networks of an accuracy table, with all their seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from epitomic.analysis.transfer import KERNELS
from epitomic.data.location import DATA_VARIABLE, data_root
from epitomic.reproduction.table_plans import PlannedRun, get_table, plan_runs
from epitomic.support.errors import UserError


@dataclass(frozen=True)
class TransferPlan:
    """The plan of one table of transfer."""

    name: str
    title: str  # what the table shows
    source: str  # accuracy table whose networks give the features
    images: str = "caltech101"  # start of the name of the folder of images
    models: tuple[str, ...] = ("epitomic", "epitomic_norm", "maxpool", "maxpool_norm", "topographic_norm")
    kernels: tuple[str, ...] = tuple(KERNELS)
    per_class: int = 30  # images of each class to train on
    splits: int = 5


@dataclass(frozen=True)
class PlannedFeatures:
    """One kind of features of one run."""

    run: PlannedRun
    kind: str

    @property
    def name(self) -> str:
        """Name for readers."""
        return f"{self.run.name}, {self.kind}"


TRANSFERS = {
    "caltech101": TransferPlan("caltech101", "Caltech-101 by the networks of imagenette", "imagenette"),
    "caltech101_tiny": TransferPlan("caltech101_tiny", "Caltech-101 by the networks of tiny_imagenet", "tiny_imagenet"),
}


def plan_features(
    plan: TransferPlan, models: list[str] | None = None, seeds: int | None = None
) -> Iterator[PlannedFeatures]:
    """Yields the features of a table: every trained network, each network untrained once, and the pixels once.

    Args:
        plan: Plan of the table.
        models: Networks to take; None means those of the plan.
        seeds: Number of seeds of each; None means as many as the accuracy table has.
    """
    runs = list(plan_runs(get_table(plan.source), models or list(plan.models), seeds))
    yield from (PlannedFeatures(run, "network") for run in runs)
    yield from (PlannedFeatures(run, "untrained") for run in runs if run.seed == 0)
    yield PlannedFeatures(runs[0], "pixels")


def find_images(plan: TransferPlan, folder: str | Path | None = None) -> Path:
    """Finds the images: the folder itself if it has that name, or one inside it."""
    root = data_root(folder)
    candidates = [root, *sorted(root.glob(f"{plan.images}*"))]
    for path in candidates:
        if path.resolve().name.startswith(plan.images) and path.is_dir():
            return path
    raise UserError(
        f"no images of {plan.images} in {root}: set --data-dir or {DATA_VARIABLE} to a folder that holds a folder "
        f"{plan.images} or {plan.images}-..., with one folder for each class"
    )
