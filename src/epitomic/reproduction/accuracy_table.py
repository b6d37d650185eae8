"""The table of errors, from the runs that are finished so far.

`epitomic reproduce mnist` and `epitomic reproduce cifar10` make our Table 6. `epitomic reproduce imagenette` makes the
stand-in for Table 4.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from epitomic.evaluation import OTHER_WAYS
from epitomic.reproduction.finished_runs import FinishedRun, by_model
from epitomic.reproduction.table_plans import TablePlan
from epitomic.support.console import markdown_table
from epitomic.support.machine import describe_facts, short_commit

RUN_HEAD = (
    *("network", "seed", "test error, %", "validation error, % (epoch)", "epochs", "seconds", "core seconds"),
    *("threads", "commit", "command"),
)


@dataclass(frozen=True)
class OverSeeds:
    """A share, such as an error, over the seeds of one network; shown in percent.

    >>> print(OverSeeds([0.05, 0.07]))
    6.00 ± 1.41
    """

    values: Sequence[float]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None if there is only one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def minus(self, other: OverSeeds) -> tuple[float, float | None]:
        """Returns the difference of the means, and its standard error if both have several seeds."""
        difference = self.mean - other.mean
        if self.spread is None or other.spread is None:
            return difference, None
        return difference, math.sqrt(self.spread**2 / len(self.values) + other.spread**2 / len(other.values))

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f}" + ("" if self.spread is None else f" ± {100 * self.spread:.2f}")


def accuracy_table(table: TablePlan, runs: Sequence[FinishedRun]) -> str:
    """Returns the table as Markdown: the errors of each network, how they were made, and every run."""
    if not runs:
        return f"{table.title}: no run is finished yet.\n"
    groups = by_model(runs)
    ways = [way for way in OTHER_WAYS if all(way in run.results for run in runs)]
    top5 = any("top5" in run.results["test"] and len(run.results["test"]["classes"]) > 10 for run in runs)
    first, *others = groups
    head = ["network", "seeds", "10-crop error, %" if "center" in ways else "test error, %"]
    head += [f"{OTHER_WAYS[way]}, %" for way in ways] + (["top-5 error, %"] if top5 else [])
    head += [f"difference from `{first}`"] if others else []
    head += ["validation error, %", "parameters", "core seconds per epoch", "minutes per run"]
    errors = {model: OverSeeds([run.error() for run in group]) for model, group in groups.items()}
    rows = []
    for model, group in groups.items():
        cells = [f"`{model}`", str(len(group)), str(errors[model])]
        cells += [str(OverSeeds([run.error(way) for run in group])) for way in ways]
        cells += [str(OverSeeds([1 - run.results["test"]["top5"] for run in group]))] if top5 else []
        cells += [_difference(errors[model], errors[first]) if model != first else ""] if others else []
        cells += [
            str(OverSeeds([run.results["validation_error"] for run in group])),
            f"{group[0].results['parameters']:,}",
            _median([run.epoch_cost for run in group]),
            f"{statistics.median(run.results['wall_seconds'] for run in group) / 60:.1f}",
        ]
        rows.append(cells)
    caption = (
        f"{table.title}: mean ± standard deviation over seeds{'; s.e.: standard error' if others else ''}. "
        f"Made by `epitomic reproduce {table.name}` on {describe_facts([run.facts for run in runs])}."
    )
    ordered = sorted(runs, key=lambda run: (run.planned.model, run.planned.seed))
    every_run = markdown_table(RUN_HEAD, map(_run_cells, ordered))
    details = f"<details><summary>Every run</summary>\n\n{every_run}\n</details>\n"
    return f"{caption}\n\n{markdown_table(head, rows)}\n{details}"


def _run_cells(run: FinishedRun) -> list[str]:
    results, test = run.results, run.results["test"]
    return [
        f"`{run.planned.model}`",
        str(run.planned.seed),
        f"{100 * test['error']:.2f} ({test['errors']} of {test['images']})",
        f"{100 * results['validation_error']:.2f} ({results['best_epoch'] + 1})",
        str(results["epochs"]),
        f"{results['wall_seconds']:.0f}",
        f"{results['cpu_seconds']:.0f}",
        str(run.facts["machine"]["threads"]),
        short_commit(run.facts),
        f"`{run.facts['command']}`",
    ]


def _median(values: Sequence[float]) -> str:
    """Returns the median and, if there are several values, the smallest and the largest."""
    spread = f" ({min(values):.0f}-{max(values):.0f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.0f}{spread}"


def _difference(errors: OverSeeds, first: OverSeeds) -> str:
    value, standard_error = errors.minus(first)
    shown = f"{100 * value:+.2f}".replace("-0.00", "+0.00")
    return shown + ("" if standard_error is None else f" (s.e. {100 * standard_error:.2f})")
