"""The finished runs of a table: their folders without weights and checkpoints, small enough for a repository.

``results/TABLE/MODEL-SEED`` holds the files that `KEPT` names. `epitomic curves` reads it like any run folder, and a
table is made from such folders alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from epitomic.reproduction.table_plans import PlannedRun, TablePlan
from epitomic.support.errors import UserError
from epitomic.support.files import write_atomically
from epitomic.support.options import differences
from epitomic.training.recipe import Recipe
from epitomic.training.run_folder import KEPT, RunFolder


@dataclass(frozen=True)
class FinishedRun:
    """The results and the facts of a finished run."""

    planned: PlannedRun
    results: dict[str, Any]
    facts: dict[str, Any]

    def error(self, way: str = "test") -> float:
        """Returns the share of wrong test images; ``way`` is ``"test"`` or a key of `evaluation.OTHER_WAYS`."""
        return float(self.results[way]["error"])

    @property
    def top5_error(self) -> float:
        """Share of test images whose class is not among the five highest scores."""
        return 1 - float(self.results["test"]["top5"])

    @property
    def epoch_cost(self) -> float:
        """Processor seconds per epoch, with validation."""
        return float(self.results["cpu_seconds"]) / float(self.results["epochs"])


def keep_run(run: Path, kept: Path) -> None:
    """Copies the files of a finished run that are worth keeping."""
    for name in KEPT:
        write_atomically(kept / name, partial(shutil.copyfile, run / name))


def read_runs(table: TablePlan, folder: Path, recipe: Recipe) -> list[FinishedRun]:
    """Reads all finished runs in a table's folder, network by network in the table's order.

    Seeds that are not planned count too.

    Raises:
        UserError: If a run was made by another recipe, because one table must not mix two.
    """
    runs = []
    for model in table.seeds:
        seeds = (path.name.removeprefix(f"{model}-") for path in folder.glob(f"{model}-*"))
        for seed in sorted(int(seed) for seed in seeds if seed.isdecimal()):
            planned = PlannedRun(model, seed)
            run = RunFolder(folder / planned.name)
            if run.results is not None:
                _check_recipe(run, planned.resolve(recipe))
                runs.append(FinishedRun(planned, run.results, run.facts))
    return runs


def by_model(runs: Iterable[FinishedRun]) -> dict[str, list[FinishedRun]]:
    """Groups the runs by network, in the order of the table."""
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(run.planned.model, []).append(run)
    return groups


def _check_recipe(run: RunFolder, recipe: Recipe) -> None:
    changed = list(differences(run.read_recipe(), recipe))
    if changed:
        listed = ", ".join(f"{path} {old} where the recipe now has {new}" for path, old, new in changed)
        raise UserError(f"{run.folder} was made by another recipe ({listed}): add another --out, or delete that folder")
