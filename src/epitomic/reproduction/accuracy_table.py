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
    """Returns the table as Markdown: the errors of each network, how they were made, comparisons, and every run."""
    if not runs:
        return f"{table.title}: no run is finished yet.\n"
    groups = by_model(runs)
    ways = [way for way in OTHER_WAYS if all(way in run.results for run in runs)]
    top5 = _has_top5(runs)
    head = ["network", "seeds", "10-crop error, %" if "center" in ways else "test error, %"]
    head += [f"{OTHER_WAYS[way]}, %" for way in ways] + (["top-5 error, %"] if top5 else [])
    head += ["validation error, %", "parameters", "core seconds per epoch", "minutes per run"]
    rows = []
    for model, group in groups.items():
        cells = [f"`{model}`", str(len(group)), str(OverSeeds([run.error() for run in group]))]
        cells += [str(OverSeeds([run.error(way) for run in group])) for way in ways]
        cells += [str(OverSeeds([run.top5_error for run in group]))] if top5 else []
        cells += [
            str(OverSeeds([run.results["validation_error"] for run in group])),
            f"{group[0].results['parameters']:,}",
            _median([run.epoch_cost for run in group]),
            f"{statistics.median(run.results['wall_seconds'] for run in group) / 60:.1f}",
        ]
        rows.append(cells)
    caption = (
        f"{table.title}: mean ± standard deviation over seeds. "
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


def comparisons(table: TablePlan, runs: Sequence[FinishedRun]) -> str:
    """Returns the comparisons of a table as Markdown; empty if it lacks the runs of all of them.

    A table that names no pairs compares its first network with each of the others.
    """
    groups = by_model(runs)
    first, *others = groups
    pairs = table.pairs or tuple((first, other) for other in others)
    found = [(groups[one], groups[other]) for one, other in pairs if one in groups and other in groups]
    return comparison_table(found) if found else ""


def comparison_table(pairs: Sequence[tuple[Sequence[FinishedRun], Sequence[FinishedRun]]]) -> str:
    """Returns the comparison of pairs of networks as Markdown, and what its columns mean.

    Args:
        pairs: Runs of two networks for each comparison.
    """
    rows = [row for first, second in pairs for row in _comparisons(first, second)]
    head = ["first against second network", "error", "seeds", "difference over seeds"]
    head += ["over images", "smallest difference", "first network's error is"]
    text = (
        "Differences in points: the first network's error minus the second's. In brackets is the 95 % interval, by "
        "Welch's t over seeds. *Smallest difference* is what as many seeds with this spread would find in 80 % of all "
        "cases."
    )
    place = head.index("over images")
    if any(row[place] for row in rows):
        text += " *Over images* is a bootstrap over test images, paired by image, of the runs that keep the ranks."
    else:
        text += " No pair has runs on both sides that keep the rank of each image, so there is no interval over images."
        head, *rows = ([cell for number, cell in enumerate(row) if number != place] for row in (head, *rows))
    return f"{text}\n\n{markdown_table(head, rows)}"


def _comparisons(first: Sequence[FinishedRun], second: Sequence[FinishedRun]) -> list[list[str]]:
    """Returns one row for each kind of error that all runs have."""
    both = (*first, *second)
    rows = [_comparison(first, second, "top-5" if _has_top5(both) else "test")]
    if _has_top5(both):
        rows.append(_comparison(first, second, "test"))
    if all("plain" in run.results for run in both):
        rows.append(_comparison(first, second, "plain"))
    return rows


def _comparison(first: Sequence[FinishedRun], second: Sequence[FinishedRun], kind: str) -> list[str]:
    both = (first, second)
    errors = [OverSeeds([run.top5_error if kind == "top-5" else run.error(kind) for run in group]) for group in both]
    interval = welch(errors[0].values, errors[1].values)
    smallest = smallest_difference(errors[0].values, errors[1].values)
    return [
        " against ".join(f"`{group[0].planned.model}`" for group in both),
        {"test": "test", "top-5": "top-5", "plain": OTHER_WAYS["plain"]}[kind],
        " and ".join(str(len(group)) for group in both),
        signed(errors[0].mean - errors[1].mean) if interval is None else str(interval),
        _over_images(first, second, kind),
        "" if smallest is None else f"{100 * smallest:.2f}",
        "one seed: no verdict" if interval is None else interval.verdict,
    ]


def _over_images(first: Sequence[FinishedRun], second: Sequence[FinishedRun], kind: str) -> str:
    """Returns the bootstrap interval, and the numbers of runs that it is of; empty if there are no ranks."""
    reports = [[run.results["plain" if kind == "plain" else "test"] for run in group] for group in (first, second)]
    ranks = [[report["ranks"] for report in group if "ranks" in report] for group in reports]
    interval = over_images(ranks[0], ranks[1], 5 if kind == "top-5" else 1)
    if interval is None:
        return ""
    counts = [len(group) for group in ranks]
    return f"{interval}, {counts[0]} and {counts[1]} run{'s' if max(counts) > 1 else ''}"


def _has_top5(runs: Sequence[FinishedRun]) -> bool:
    """Whether there are enough classes for a top-5 error."""
    return all("top5" in run.results["test"] and len(run.results["test"]["classes"]) > 10 for run in runs)
