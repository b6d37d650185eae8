"""What is kept of a finished run: its folder without weights and checkpoints, small enough for a repository.

``results/TABLE/MODEL-SEED`` holds recipe.json, run.json, metrics.csv and results.json. `epitomic curves` reads such a
folder like any other, and a table is made of them alone.
"""

from __future__ import annotations

import math
import shutil
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from epitomic.errors import UserError
from epitomic.files import read_json, write_atomically
from epitomic.options import differences
from epitomic.reproduction.tables import Planned, Table
from epitomic.training.recipe import Recipe
from epitomic.training.run import Run

KEPT = ("recipe.json", "run.json", "metrics.csv", "results.json")  # the last one makes the run count as finished


def is_finished(folder: Path) -> bool:
    """Whether a run folder, or what was kept of one, holds the end of a run."""
    return (folder / KEPT[-1]).is_file()


def keep(run: Path, folder: Path) -> None:
    """Copies what is worth keeping of a finished run."""
    for name in KEPT:
        write_atomically(folder / name, partial(shutil.copyfile, run / name))


def check_recipe(folder: Path, recipe: Recipe) -> None:
    """An error if a kept run was made by another recipe: one table must not mix two."""
    changed = list(differences(Run(folder).read_recipe(), recipe))
    if changed:
        listed = ", ".join(f"{path} {old} where the recipe now has {new}" for path, old, new in changed)
        raise UserError(f"{folder} was made by another recipe ({listed}): name another --out, or delete that folder")


@dataclass(frozen=True)
class Finished:
    """The figures of a finished run."""

    planned: Planned
    results: dict[str, Any]
    facts: dict[str, Any]

    @classmethod
    def read(cls, planned: Planned, folder: Path) -> Finished:
        """From its folder."""
        return cls(planned, read_json(folder / "results.json"), read_json(folder / "run.json"))

    def error(self, test: str = "test") -> float:
        """Share of the test images that are classified wrongly; ``test`` is one of the ways to look at them."""
        return float(self.results[test]["error"])

    @property
    def epoch_cost(self) -> float:
        """Processor seconds an epoch, validation included."""
        return float(self.results["cpu_seconds"]) / float(self.results["epochs"])


def finished(table: Table, folder: Path, recipe: Recipe) -> list[Finished]:
    """All runs of a table that a folder keeps, however many seeds: network by network, in the table's order.

    Raises:
        UserError: If one of them was made by another recipe.
    """
    runs = []
    for model in table.seeds:
        seeds = (path.name.removeprefix(f"{model}-") for path in folder.glob(f"{model}-*") if is_finished(path))
        for seed in sorted(int(seed) for seed in seeds if seed.isdecimal()):
            one = Planned(model, seed)
            check_recipe(folder / one.name, one.resolve(recipe))
            runs.append(Finished.read(one, folder / one.name))
    return runs


@dataclass(frozen=True)
class Sample:
    """A figure over seeds."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds; None of one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def variance_of_mean(self) -> float | None:
        """Its square over the number of seeds."""
        return None if self.spread is None else self.spread**2 / len(self.values)

    def minus(self, other: Sample) -> tuple[float, float | None]:
        """The difference of the means, and its standard error where both have one."""
        variances = (self.variance_of_mean, other.variance_of_mean)
        known = [v for v in variances if v is not None]
        return self.mean - other.mean, math.sqrt(sum(known)) if len(known) == 2 else None


def by_model(finished: Iterable[Finished]) -> dict[str, list[Finished]]:
    """The runs of each network, in the order of the table."""
    groups: dict[str, list[Finished]] = {}
    for run in finished:
        groups.setdefault(run.planned.model, []).append(run)
    return groups
