"""Draws pictures of docs/results.md from results/: the curves of photographs, and the claims as claim-LETTER-TABLE.png.

    python tools/draw_results.py            draws all
    python tools/draw_results.py a e        draws of the claims only these

Run it when runs were added to results/, and then tools/fill_tables.py, which puts the pictures into the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from claim_figures import PHOTOGRAPHS
from matplotlib.figure import Figure
from paper_numbers import PAPER_PHOTOGRAPHS
from records import RESULTS, ROOT, finished_runs, published_tables

from epitomic.analysis.transfer import KERNELS
from epitomic.reproduction.claims import claim_rows
from epitomic.reproduction.comparison import signed, welch
from epitomic.reproduction.finished_runs import FinishedRun, by_model
from epitomic.reproduction.transfer_plans import TRANSFERS
from epitomic.reproduction.transfer_table import read_entries
from epitomic.training.run_folder import RunFolder
from epitomic.visualisation import Row, curves_figure, intervals_figure, open_runs
from epitomic.visualisation.style import encode_figure

IMAGES = ROOT / "docs" / "images"
METRIC = {"imagenette": "val_error", "tiny_imagenet": "val_top5_error"}
KERNEL = "linear"
NARROW = (520, 420)  # readable on a phone, too
BETTER, WORSE, UNDECIDED, OTHER = range(4)  # kinds of rows
# Title -> what is compared: label, table and network of epitomes, table and network of max-pooling.
SMALL_IMAGES = {
    "MNIST, test error": [
        ("16 epochs", "mnist", "epitomic_small", "mnist", "maxpool_small"),
        ("4 epochs", "mnist_short", "epitomic_small", "mnist_short", "maxpool_small"),
    ],
    "CIFAR-10, test error": [
        ("10 epochs each", "cifar10_short", "epitomic_small", "cifar10_short", "maxpool_small"),
        ("same time, torch's pooling", "cifar10_equal_time", "epitomic_small", "cifar10_short", "maxpool_small"),
        ("fast networks, 12 epochs", "cifar10_fast", "epitomic_fast", "cifar10_fast", "maxpool_fast"),
    ],
}
Runs = list[FinishedRun]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("letters", nargs="*", default=list("abcde"), metavar="LETTER", help="claims (default: all)")
    letters = parser.parse_args().letters
    for name, figure in pictures():
        if not name.startswith("claim") or name.split("-")[1] in letters:
            (IMAGES / f"{name}.png").write_bytes(encode_figure(figure, "png"))
            print(f"wrote {IMAGES / name}.png")


def pictures() -> Iterator[tuple[str, Figure]]:
    """Yields the name and the figure of each picture for which there are runs."""
    yield "claim-a", twins()
    for table in PHOTOGRAPHS:
        groups = by_model(finished_runs(table)) if table in published_tables() else {}
        folders = [RESULTS / table / run.planned.name for runs in groups.values() for run in runs]
        if len(groups) > 1:
            metric = METRIC[table]
            yield table, curves_figure(open_runs(folders), metric=metric)
            yield f"{table}-time", curves_figure(open_runs(folders), metric=metric, against="core-seconds")
        for letter, networks in {
            "b": ("epitomic", "epitomic_norm", "maxpool", "maxpool_norm"),
            "c": ("topographic", "topographic_norm", "epitomic_norm"),
            "d": ("epitomic", "maxpool"),
        }.items():
            there = sum(model in groups for model in networks)
            if there > 1 and claim_rows([RunFolder(folder) for folder in folders], letter):
                yield f"claim-{letter}-{table}", converging(table, networks, every_run=letter == "d")
    for name in TRANSFERS:
        if (RESULTS / name).is_dir():
            yield f"claim-e-{name}", transferring(name)


def twins() -> Figure:
    """Claim (a): epitomic layers against max-pooling in every table."""
    groups = {"ImageNet, top-5 error": [_papers("no normalisation", ""), _papers("normalised", "_norm")]}
    for table, title in PHOTOGRAPHS.items():
        if table in published_tables():
            runs = by_model(finished_runs(table))
            top5 = table != "imagenette"
            rows = [
                _twin_row(label, runs[f"epitomic{end}"], runs[f"maxpool{end}"], top5=top5)
                for label, end in (("no normalisation", ""), ("normalised", "_norm"))
                if f"epitomic{end}" in runs and f"maxpool{end}" in runs
            ]
            groups[f"{title}, 10-crop {'top-5 ' * top5}error"] = rows
    for title, compared in SMALL_IMAGES.items():
        groups[title] = [
            _twin_row(label, by_model(finished_runs(one))[model], by_model(finished_runs(other))[twin])
            for label, one, model, other, twin in compared
        ]
    keys = (
        "epitomic layers make fewer errors",
        "max-pooling makes fewer errors",
        "undecided, or one seed (no line)",
        "the paper (one network each)",
    )
    label = "error with epitomes minus error with max-pooling (points)"
    return intervals_figure({title: rows for title, rows in groups.items() if rows}, keys=keys, label=label)


def _papers(label: str, end: str) -> Row:
    difference = float(PAPER_PHOTOGRAPHS[f"epitomic{end}"][0]) - float(PAPER_PHOTOGRAPHS[f"maxpool{end}"][0])
    return Row(label, difference, None, OTHER, f"{difference:+.1f}")


def _twin_row(label: str, first: Runs, second: Runs, *, top5: bool = False) -> Row:
    errors = [[run.top5_error if top5 else run.error() for run in runs] for runs in (first, second)]
    interval = welch(errors[0], errors[1])
    if interval is None:
        value = sum(errors[0]) / len(errors[0]) - sum(errors[1]) / len(errors[1])
        return Row(f"{label}, one seed", 100 * value, None, UNDECIDED, signed(value))
    kind = {"lower": BETTER, "higher": WORSE, "undecided": UNDECIDED}[interval.verdict]
    edges = (100 * interval.low, 100 * interval.high)
    return Row(label, 100 * interval.difference, edges, kind, str(interval))


def converging(table: str, networks: tuple[str, ...], *, every_run: bool) -> Figure:
    """Claims (b) to (d): curves of some networks."""
    runs = [run.planned for run in finished_runs(table) if run.planned.model in networks]
    runs.sort(key=lambda run: networks.index(run.model))
    folders = [RESULTS / table / run.name for run in runs]
    return curves_figure(open_runs(folders), metric=METRIC[table], scale="linear", every_run=every_run, size=NARROW)


def transferring(name: str) -> Figure:
    """Claim (e): accuracy of the features of each network, and of raw pixels."""
    entries = [(run, entry) for run, entry in read_entries(RESULTS / name) if entry["kernel"] == KERNEL]
    pixels = next((entry["mean"] for _, entry in entries if entry["features"] == "pixels"), 0.0)
    groups: dict[str, list[Row]] = {}
    for title, kind in (("Trained networks", "network"), ("Untrained networks", "untrained"), ("Raw pixels", "pixels")):
        for run, entry in entries:
            if entry["features"] == kind:
                low, high = min(entry["accuracies"]), max(entry["accuracies"])
                mark = OTHER if kind == "pixels" else BETTER if low > pixels else WORSE if high < pixels else UNDECIDED
                text = f"{100 * entry['mean']:.1f} ({100 * low:.1f} to {100 * high:.1f})"
                row = Row(run if kind != "pixels" else "", 100 * entry["mean"], (100 * low, 100 * high), mark, text)
                groups.setdefault(title, []).append(row)
    keys = ("every split above the pixels' mean", "every split below it", "on both sides of it", "raw pixels")
    label = f"accuracy (%), {KERNELS[KERNEL]} kernel: mean and range of splits"
    return intervals_figure(groups, keys=keys, label=label, line=100 * pixels)


if __name__ == "__main__":
    main()
