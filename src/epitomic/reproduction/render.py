"""A table as Markdown, from the runs that are finished so far."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from epitomic.evaluation import OTHER_WAYS
from epitomic.reproduction.results import Finished, Sample, by_model
from epitomic.reproduction.tables import Table


def render(name: str, table: Table, finished: Sequence[Finished]) -> str:
    """The whole table: figures, how they were made, every run."""
    if not finished:
        return f"{table.title}: no run is finished yet.\n"
    groups = by_model(finished)
    ways = [way for way in OTHER_WAYS if all(way in run.results for run in finished)]
    top5 = any("top5" in run.results["test"] and len(run.results["test"]["classes"]) > 10 for run in finished)
    head = ["network", "seeds", "10-crop error, %" if "center" in ways else "test error, %"]
    head += [f"{OTHER_WAYS[way]}, %" for way in ways] + (["top-5 error, %"] if top5 else [])
    head += ["minus the first", "validation, %", "parameters", "core seconds an epoch", "minutes a run"]
    first = Sample([run.error() for run in next(iter(groups.values()))])
    lines: list[list[str]] = []
    for model, runs in groups.items():
        errors = Sample([run.error() for run in runs])
        cells = [f"`{model}`", str(len(runs)), percent(errors)]
        cells += [percent(Sample([run.error(way) for run in runs])) for way in ways]
        cells += [percent(Sample([1 - run.results["test"]["top5"] for run in runs]))] if top5 else []
        cells += [
            "" if not lines else _difference(errors, first),
            percent(Sample([run.results["validation_error"] for run in runs])),
            f"{runs[0].results['parameters']:,}",
            _median([run.epoch_cost for run in runs]),
            f"{statistics.median(run.results['wall_seconds'] for run in runs) / 60:.1f}",
        ]
        lines.append(cells)
    machines = made([run.facts for run in finished])
    text = f"{table.title}. `epitomic reproduce {name}`: mean and standard deviation over seeds; {machines}.\n\n"
    text += markdown(head, lines)
    text += "\n<details><summary>Every run</summary>\n\n" + _every_run(finished) + "\n</details>\n"
    return text


def _every_run(finished: Sequence[Finished]) -> str:
    rows = []
    for run in sorted(finished, key=lambda run: (run.planned.model, run.planned.seed)):
        test, facts = run.results["test"], run.facts
        rows.append(
            [
                f"`{run.planned.model}`",
                str(run.planned.seed),
                f"{100 * test['error']:.2f} ({test['errors']} of {test['images']})",
                f"{100 * run.results['validation_error']:.2f} at {run.results['best_epoch'] + 1}",
                str(run.results["epochs"]),
                f"{run.results['wall_seconds']:.0f}",
                f"{run.results['cpu_seconds']:.0f}",
                f"{facts['machine']['threads']}",
                short_commit(facts),
                f"`{facts['command']}`",
            ]
        )
    head = ["network", "seed", "test error, %", "validation, % at epoch", "epochs", "seconds", "core seconds"]
    return markdown([*head, "threads", "commit", "command"], rows)


def made(facts: Sequence[dict[str, Any]]) -> str:
    """Processor and versions, all of them if the runs differ."""
    machines = {_machine(**one["machine"]) for one in facts}
    versions = {f"torch {one['versions']['torch']}, Python {one['versions']['python']}" for one in facts}
    return "; ".join((*sorted(machines), *sorted(versions)))


def _machine(cores: int, processor: str, vectors: str = "", **_: object) -> str:
    return f"{cores} cores of {processor}" + (f" with {vectors}" if vectors else "")


def short_commit(facts: dict[str, Any]) -> str:
    """Of a run's facts, with the plus of a tree that was changed since."""
    commit = facts["commit"] or ""
    return commit[:8] + "+" * commit.endswith("+")


def percent(sample: Sample) -> str:
    """Mean and, of several seeds, standard deviation."""
    spread = "" if sample.spread is None else f" ± {100 * sample.spread:.2f}"
    return f"{100 * sample.mean:.2f}{spread}"


def _median(values: Sequence[float]) -> str:
    """And, of several, the least and the largest."""
    spread = f" ({min(values):.0f}-{max(values):.0f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.0f}{spread}"


def _difference(sample: Sample, first: Sample) -> str:
    value, error = sample.minus(first)
    return f"{100 * value:+.2f}".replace("-0.00", "+0.00") + ("" if error is None else f" (s.e. {100 * error:.2f})")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
