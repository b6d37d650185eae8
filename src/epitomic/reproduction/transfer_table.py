"""The table of a transfer experiment, Table 5 of the paper, from the files that `epitomic transfer --out` keeps."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from epitomic.analysis.transfer import KERNELS
from epitomic.reproduction.comparison import signed, smallest_difference, welch
from epitomic.support.console import markdown_table
from epitomic.support.errors import UserError, unknown
from epitomic.support.files import read_sealed
from epitomic.support.machine import describe_facts, short_commit
from epitomic.training.run_schema import check_transfer

MISSING = "-"
HEAD = ("features", "network", "numbers per image")
TWINS = (("epitomic", "maxpool"), ("epitomic_norm", "maxpool_norm"))
Entries = Sequence[tuple[str, dict[str, Any]]]  # name of the run, figures


def transfer_table(folder: Path) -> str:
    """Returns the table of all runs in a folder: a row for each kind of features, a column for each kernel.

    A kernel that was not measured has a dash.
    """
    entries = read_entries(folder)
    if not entries:
        return "Nothing is measured yet.\n"
    splits = sorted({len(entry["accuracies"]) for _, entry in entries})
    text = (
        "Mean per-class accuracy of a support vector machine on features: mean ± standard deviation over "
        f"{' or '.join(map(str, splits))} random splits. Made on {describe_facts([e['facts'] for _, e in entries])}. "
        f"{MISSING} was not measured.\n"
    )
    for experiment in sorted({_experiment(entry) for _, entry in entries}):
        data, images, classes, per_class = experiment
        text += f"\n{data}: {images:,} images of {classes} classes, {per_class} images per class for training.\n\n"
        here = [(run, entry) for run, entry in entries if _experiment(entry) == experiment]
        rows: dict[tuple[str, str], list[str]] = {}
        for run, entry in here:
            row = rows.setdefault((entry["features"], run), [f"{entry['numbers']:,}", *(MISSING for _ in KERNELS)])
            row[1 + list(KERNELS).index(entry["kernel"])] = _accuracy(entry)
        head = (*HEAD, *(f"{name}, %" for name in KERNELS.values()))
        text += markdown_table(head, ([kind, f"`{run}`", *row] for (kind, run), row in sorted(rows.items())))
        text += _pixels(here) + transfer_claims(here)
    commands = sorted({(short_commit(e["facts"]), f"`{e['facts'].get('command', 'unknown')}`") for _, e in entries})
    lines = markdown_table(("commit", "command"), commands)
    return f"{text}\n<details><summary>Commands</summary>\n\n{lines}\n</details>\n"


def read_entries(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Reads all figures in a folder, each with the name of its run."""
    kept = {path.stem: check_transfer(read_sealed(path), path) for path in sorted(folder.glob("*.json"))}
    entries = [(run, entry) for run, results in kept.items() for entry in results.values()]
    for run, entry in entries:
        if entry["kernel"] not in KERNELS:
            raise UserError(f"{folder / run}.json: {unknown('kernel', entry['kernel'], KERNELS)}")
    return entries


def transfer_claims(entries: Entries) -> str:
    """Tests whether epitomic features transfer better than those of max-pooling; empty without both networks.

    A seed counts by its mean over the splits, because the splits of one network are not independent of each other.
    """
    rows = transfer_claim_rows(entries)
    if not rows:
        return ""
    head = ("networks", "kernel", "seeds", "difference (95 % interval)", "smallest difference", "verdict")
    text = (
        "Claim (e), epitomic features transfer better: differences in points of accuracy, first network minus second. "
        "Each seed counts by its mean over the splits; the interval is Welch's t over seeds."
    )
    return f"\n{text}\n\n{markdown_table(head, rows)}"


def transfer_claim_rows(entries: Entries) -> list[list[str]]:
    """Returns a row of cells for each pair of networks and kernel of claim (e)."""
    return list(_claims(entries))


def _claims(entries: Entries) -> Iterator[list[str]]:
    for pair in TWINS:
        for kernel in KERNELS:
            both = [_means(entries, model, kernel) for model in pair]
            if all(both):
                interval, smallest = welch(*both), smallest_difference(*both)
                difference = signed(statistics.fmean(both[0]) - statistics.fmean(both[1]))
                verdict = {"higher": "confirmed", "lower": "refuted"}.get(interval.verdict if interval else "")
                yield [
                    " against ".join(f"`{model}`" for model in pair),
                    KERNELS[kernel],
                    " and ".join(str(len(means)) for means in both),
                    str(interval or difference),
                    "" if smallest is None else f"{100 * smallest:.2f}",
                    verdict or ("undecided" if interval else "one seed: no verdict"),
                ]


def _means(entries: Entries, model: str, kernel: str) -> list[float]:
    """Returns the mean accuracy of each seed of a trained network."""
    return [
        entry["mean"]
        for run, entry in entries
        if (run.rpartition("-")[0], entry["features"], entry["kernel"]) == (model, "network", kernel)
    ]


def _pixels(entries: Entries) -> str:
    """Says how the best run does against raw pixels, by each kernel; empty if pixels were not measured."""
    lines = []
    for kernel in KERNELS:
        here = [(run, entry) for run, entry in entries if entry["kernel"] == kernel]
        pixels = [entry for _, entry in here if entry["features"] == "pixels"]
        trained = [(entry["mean"], run, entry) for run, entry in here if entry["features"] == "network"]
        if pixels and trained:
            _, run, best = max(trained, key=lambda one: one[0])
            above = sum(mean > pixels[0]["mean"] for mean, _, _ in trained)
            lines.append(
                f"- {KERNELS[kernel]}: raw pixels reach {_accuracy(pixels[0])} %, and the best network, `{run}`, "
                f"{_accuracy(best)} %. {above} of {len(trained)} trained networks beat the pixels.\n"
            )
    return "\n" + "".join(lines) if lines else ""


def _experiment(entry: dict[str, Any]) -> tuple[str, int, int, int]:
    return entry["data"], entry["images"], entry["classes"], entry["train_per_class"]


def _accuracy(entry: dict[str, Any]) -> str:
    spread = entry["standard_deviation"]
    return f"{100 * entry['mean']:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}")
