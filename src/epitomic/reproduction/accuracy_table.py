"""The table of errors, from the runs that are finished so far.

`epitomic reproduce mnist` and `epitomic reproduce cifar10` make our Table 6. `epitomic reproduce imagenette` and
`epitomic reproduce tiny_imagenet` make the stand-ins for Table 4.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from epitomic.evaluation import OTHER_WAYS
from epitomic.reproduction.comparison import over_images, signed, smallest_difference, welch
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

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f}" + ("" if self.spread is None else f" ± {100 * self.spread:.2f}")


def accuracy_table(table: TablePlan, runs: Sequence[FinishedRun]) -> str:
    """Returns the table as Markdown: the errors of each network, how they were made, and every run."""
    if not runs:
        return f"{table.title}: no run is finished yet.\n"
    groups = by_model(runs)
    ways = [way for way in OTHER_WAYS if all(way in run.results for run in runs)]
    top5 = _has_top5(runs)
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
        cells += [str(OverSeeds([run.top5_error for run in group]))] if top5 else []
        cells += [_difference(errors[model], errors[first]) if model != first else ""] if others else []
        cells += [
            str(OverSeeds([run.results["validation_error"] for run in group])),
            f"{group[0].results['parameters']:,}",
            _median([run.epoch_cost for run in group]),
            f"{statistics.median(run.results['wall_seconds'] for run in group) / 60:.1f}",
        ]
        rows.append(cells)
    intervals = "; differences with their 95 % interval (Welch)" if others else ""
    caption = (
        f"{table.title}: mean ± standard deviation over seeds{intervals}. "
        f"Made by `epitomic reproduce {table.name}` on {describe_facts([run.facts for run in runs])}."
    )
    ordered = sorted(runs, key=lambda run: (run.planned.model, run.planned.seed))
    every_run = markdown_table(RUN_HEAD, map(_run_cells, ordered))
    details = f"<details><summary>Every run</summary>\n\n{every_run}\n</details>\n"
    compared = comparisons(table, runs)
    return "\n".join([caption, "", markdown_table(head, rows), *([compared] if compared else []), details])


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
        str(run.facts.get("machine", {}).get("threads", "?")),
        short_commit(run.facts),
        f"`{run.facts.get('command', 'unknown')}`",
    ]


def _median(values: Sequence[float]) -> str:
    """Returns the median and, if there are several values, the smallest and the largest."""
    spread = f" ({min(values):.0f}-{max(values):.0f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.0f}{spread}"


def _difference(errors: OverSeeds, first: OverSeeds) -> str:
    """Returns the difference of the means, with its interval if both networks have several seeds."""
    interval = welch(errors.values, first.values)
    return signed(errors.mean - first.mean) if interval is None else str(interval)


def comparisons(table: TablePlan, runs: Sequence[FinishedRun]) -> str:
    """Returns the comparisons that the table is about, as Markdown; empty if it names none or lacks their runs."""
    groups, top5 = by_model(runs), _has_top5(runs)
    rows = []
    for first, second in table.pairs:
        if first in groups and second in groups:
            rows += [_comparison(groups[first], groups[second], places) for places in ((1, 5) if top5 else (1,))]
    if not rows:
        return ""
    head = ("networks", "error", "seeds", "difference over seeds", "over images", "smallest difference", "error is")
    text = (
        "Differences in points, each with its 95 % interval: Welch's t over seeds, and a bootstrap over test images, "
        "paired by image, for the runs that keep the rank of each image. *Smallest difference* is what as many seeds "
        "with this spread would find in 80 % of all cases."
    )
    return f"{text}\n\n{markdown_table(head, rows)}"


def _comparison(first: Sequence[FinishedRun], second: Sequence[FinishedRun], places: int) -> list[str]:
    both = (first, second)
    errors = [OverSeeds([run.error() if places == 1 else run.top5_error for run in group]) for group in both]
    interval = welch(errors[0].values, errors[1].values)
    smallest = smallest_difference(errors[0].values, errors[1].values)
    ranks = [[run.results["test"]["ranks"] for run in group if "ranks" in run.results["test"]] for group in both]
    images = over_images(ranks[0], ranks[1], places)
    return [
        " against ".join(f"`{group[0].planned.model}`" for group in both),
        f"top-{places}",
        " and ".join(str(len(group)) for group in both),
        _difference(*errors),
        "" if images is None else str(images),
        "" if smallest is None else f"{100 * smallest:.2f}",
        "one seed: no verdict" if interval is None else interval.verdict,
    ]


def _has_top5(runs: Sequence[FinishedRun]) -> bool:
    """Whether there are enough classes for a top-5 error."""
    return any("top5" in run.results["test"] and len(run.results["test"]["classes"]) > 10 for run in runs)
