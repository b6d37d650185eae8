"""The run folder: what a training leaves behind, and where.

recipe.json           the resolved recipe
run.json              command, commit, versions, machine, seed, wall time; what each later session had of these
metrics.csv           one line an epoch, the same in every repetition
model.safetensors     the weights of the best epoch by validation error, or of the last, as the recipe says,
config.json           and the network they are for
results.json          the test set, looked at at the end, once unless --resume asks for other views
checkpoints/          the last two, for --resume
tensorboard/          the same metrics for TensorBoard
"""

from __future__ import annotations

import csv
import io
import os
import platform
import shlex
import sys
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from epitomic._version import __version__
from epitomic.errors import UserError
from epitomic.files import TEMPORARY, read_json, write_json, write_text
from epitomic.machine import commit, processor
from epitomic.options import differences, from_dict, to_dict
from epitomic.training.checkpoint import Checkpoints
from epitomic.training.recipe import Recipe

COLUMNS = (
    *("epoch", "step", "lr", "train_loss", "train_error"),
    *("val_loss", "val_error", "val_top5_error", "best_epoch"),
)

# Facts that a later session may have of its own.
SESSION = ("command", "commit", "versions", "machine", "processes", "first_step", "started")


class Run:
    """The folder of one training.

    Args:
        folder: Where.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.checkpoints = Checkpoints(self.folder / "checkpoints")

    @property
    def recipe_path(self) -> Path:
        """The resolved recipe."""
        return self.folder / "recipe.json"

    @property
    def facts_path(self) -> Path:
        """How the run was made."""
        return self.folder / "run.json"

    @property
    def results_path(self) -> Path:
        """The results on the test set."""
        return self.folder / "results.json"

    def exists(self) -> bool:
        """Whether a training has begun here."""
        return self.recipe_path.exists()

    def read_recipe(self) -> Recipe:
        """The recipe that the run was begun with."""
        return from_dict(Recipe, read_json(self.recipe_path), str(self.recipe_path))

    def check_new(self) -> None:
        """An error unless the folder is free for a new run."""
        written = not self.folder.is_dir() or any(path.suffix != TEMPORARY for path in self.folder.iterdir())
        if self.folder.exists() and written:
            hint = "name another folder"
            if self.exists() and not self.results_path.exists() and not self.checkpoints.files():
                hint = "the run in it has no checkpoint yet: if it is not running, remove the folder, or name another"
            elif self.exists():
                hint = "add --resume to go on with the run in it, or name another folder"
            raise UserError(f"--out {self.folder} is {'not empty' if self.folder.is_dir() else 'a file'}: {hint}")

    def check_same(self, recipe: Recipe, source: str, stored: Recipe) -> None:
        """An error that names the settings in which ``recipe`` is not ``stored``, which ``source`` holds.

        Other views are no error: they are of the test, and the training is the same.
        """
        changed = list(differences(replace(stored, data=replace(stored.data, views=recipe.data.views)), recipe))
        if changed:
            listed = ", ".join(f"--{path} {new} where it has {old}" for path, old, new in changed)
            raise UserError(f"cannot resume: the recipe does not fit {source}: {listed}")

    def write_recipe(self, recipe: Recipe) -> None:
        """Which is that of the weights and of the results."""
        write_json(self.recipe_path, to_dict(recipe))

    def begin(self, recipe: Recipe, facts: dict[str, Any]) -> None:
        """Writes what is known at the start of a session; the facts of those before stay."""
        for leftover in self.folder.glob(f"*{TEMPORARY}"):  # of a crash
            leftover.unlink(missing_ok=True)
        self.write_recipe(recipe)
        facts = {**gather_facts(), "seed": recipe.seed, **facts}
        if self.facts_path.is_file():
            first = read_json(self.facts_path)
            session = {name: facts[name] for name in SESSION}
            facts = {**first, "sessions": [*first.get("sessions", ()), session]}
        write_json(self.facts_path, facts)

    def write_metrics(self, rows: list[list[Any]]) -> None:
        """All rows so far; the file is replaced whole."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
        write_text(self.folder / "metrics.csv", text.getvalue())

    def finish(self, results: dict[str, Any]) -> None:
        """Writes the wall time to the facts, then the results, which make the run count as finished."""
        facts = {**read_json(self.facts_path), "wall_seconds": results["wall_seconds"], "finished": _now()}
        write_json(self.facts_path, facts)
        write_json(self.results_path, results)


def gather_facts() -> dict[str, Any]:
    """Command, commit, versions and machine."""
    packages = ("torch", "numpy", "lightning-fabric", "safetensors", "scikit-learn", "pillow", "datasets")
    return {
        "command": shlex.join(["epitomic", *sys.argv[1:]]),
        "commit": commit(),
        "versions": {
            "epitomic": __version__,
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in packages if _installed(name)},
        },
        "machine": {
            "system": platform.platform(),
            "processor": processor(),
            "vectors": torch.backends.cpu.get_cpu_capability(),  # a virtual machine's processor may have no other name
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "started": _now(),
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
