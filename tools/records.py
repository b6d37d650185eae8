"""Reads what results/ holds, for the tools that turn it into figures."""

from __future__ import annotations

import csv
from pathlib import Path

from epitomic.reproduction.finished_runs import FinishedRun, read_runs
from epitomic.reproduction.table_plans import TABLES
from epitomic.training.recipes import get_recipe

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
Rows = list[dict[str, str]]


def published_tables() -> list[str]:
    return [name for name in TABLES if (RESULTS / name).is_dir()]


def finished_runs(name: str) -> list[FinishedRun]:
    """Returns the finished runs of an accuracy table."""
    return read_runs(TABLES[name], RESULTS / name, get_recipe(name))


def read_csv(path: Path) -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
