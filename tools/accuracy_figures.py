"""The figures about accuracy, from the runs in results/."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from records import RESULTS, finished_runs, published_tables

from epitomic.data.photographs.open import PHOTOGRAPHS
from epitomic.evaluation import OTHER_WAYS
from epitomic.models.pretrained import CONFIG, SHIPPED, WEIGHTS, list_pretrained
from epitomic.reproduction.accuracy_table import OverSeeds
from epitomic.reproduction.finished_runs import by_model
from epitomic.support.console import markdown_table
from epitomic.support.files import read_json
from epitomic.support.machine import short_commit
from epitomic.training.recipes import get_recipe

PAPER = {("mnist", "epitomic_small"): "0.44", ("cifar10", "epitomic_small"): "9.43"}  # Table 6, test error in %


def result(name: str) -> str:
    """A table of results/ without its list of single runs; nothing if no run is finished yet."""
    if not (RESULTS / name / "table.md").is_file():
        return f"No run of `{name}` is finished yet.\n"
    summary = (RESULTS / name / "table.md").read_text().partition("\n<details>")[0]
    return f"{summary}\nEvery run: [results/{name}/table.md](results/{name}/table.md).\n"


def small_images() -> str:
    """The tables of MNIST and CIFAR-10 in one (Table 6), one line a network."""
    head = (
        *("table", "network", "paper's test error, %", "test error, %", "without averaged views, %"),
        *("seeds", "core minutes per run"),
    )
    rows = []
    for name in (name for name in published_tables() if get_recipe(name).data.name not in PHOTOGRAPHS):
        for model, runs in by_model(finished_runs(name)).items():
            viewed = all("plain" in run.results for run in runs)
            errors = [str(OverSeeds([run.error() for run in runs]))]
            errors.append(str(OverSeeds([run.error("plain") for run in runs])) if viewed else "")
            minutes = statistics.median(run.results["cpu_seconds"] for run in runs) / 60
            paper = PAPER.get((name, model), "")
            rows.append([f"`{name}`", f"`{model}`", paper, *errors, str(len(runs)), f"{minutes:.0f}"])
    return markdown_table(head, rows)


def weights() -> str:
    """The weights that the package ships, one line a network."""
    rows, published = [], [run for name in published_tables() for run in finished_runs(name)]
    for name in list_pretrained():
        model, _, images = name.partition("-")
        trained = read_json(SHIPPED / name / CONFIG)["trained"]
        (run,) = (run for run in published if all(run.facts[key] == trained[key] for key in ("command", "commit")))
        size = (SHIPPED / name / WEIGHTS).stat().st_size / 1e6
        one = next(way for way in OTHER_WAYS if way in run.results)
        errors = [f"{100 * run.error(way):.2f}" for way in ("test", one)]
        load = f'`create_model("{model}", pretrained="{images}")`'
        rows.append([f"`{name}`", load, *errors, f"{run.results['parameters']:,}", f"{size:.1f}"])
    return markdown_table(("name", "in Python", "test error, %", "one view, %", "parameters", "MB"), rows)


def reconstruction() -> str:
    """The errors of images rebuilt from the first layer's matches, one line a network."""
    head = (
        *("network", "images", "best match of each patch", "4 best matches", "all matches, weighted by response"),
        *("commit", "command"),
    )
    rows = []
    for path in sorted((RESULTS / "reconstruction").glob("*.json")):
        entry = read_json(path)
        errors = [f"{error['mean']:.3f} ± {error['standard_deviation']:.3f}" for error in entry["errors"].values()]
        facts = entry["facts"]
        rows.append([f"`{path.stem}`", str(entry["images"]), *errors, short_commit(facts), f"`{facts['command']}`"])
    return markdown_table(head, rows)


FIGURES: dict[str, Callable[..., str]] = {
    "result": result,
    "small-images": small_images,
    "weights": weights,
    "reconstruction": reconstruction,
}
