"""The table of a transfer experiment, Table 5 of the paper, from the files that `epitomic transfer --out` keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epitomic.analysis.transfer import KERNELS
from epitomic.support.console import markdown_table
from epitomic.support.errors import UserError, unknown
from epitomic.support.files import read_sealed
from epitomic.support.machine import describe_facts, short_commit
from epitomic.training.run_schema import check_transfer

MISSING = "–"  # noqa: RUF001
HEAD = ("features", "network", "numbers per image")


def transfer_table(folder: Path) -> str:
    """Returns the table of all runs in a folder: a row for each kind of features, a column for each kernel.

    A kernel that was not measured has a dash.
    """
    kept = {path.stem: check_transfer(read_sealed(path), path) for path in sorted(folder.glob("*.json"))}
    entries = [(run, entry) for run, results in kept.items() for entry in results.values()]
    for run, entry in entries:
        if entry["kernel"] not in KERNELS:
            raise UserError(f"{folder / run}.json: {unknown('kernel', entry['kernel'], KERNELS)}")
    splits = sorted({len(entry["accuracies"]) for _, entry in entries})
    text = (
        "Mean per-class accuracy of a support vector machine on features: mean ± standard deviation over "
        f"{' or '.join(map(str, splits))} random splits. Made on {describe_facts([e['facts'] for _, e in entries])}. "
        f"{MISSING} was not measured.\n"
    )
    for experiment in sorted({_experiment(entry) for _, entry in entries}):
        data, images, classes, per_class = experiment
        text += f"\n{data}: {images:,} images of {classes} classes, {per_class} images per class for training.\n\n"
        rows: dict[tuple[str, str], list[str]] = {}
        for run, entry in entries:
            if _experiment(entry) == experiment:
                row = rows.setdefault((entry["features"], run), [f"{entry['numbers']:,}", *(MISSING for _ in KERNELS)])
                row[1 + list(KERNELS).index(entry["kernel"])] = _accuracy(entry)
        head = (*HEAD, *(f"{name}, %" for name in KERNELS.values()))
        text += markdown_table(head, ([kind, f"`{run}`", *row] for (kind, run), row in sorted(rows.items())))
    commands = sorted({(short_commit(e["facts"]), f"`{e['facts'].get('command', 'unknown')}`") for _, e in entries})
    lines = markdown_table(("commit", "command"), commands)
    return f"{text}\n<details><summary>Commands</summary>\n\n{lines}\n</details>\n"


def _experiment(entry: dict[str, Any]) -> tuple[str, int, int, int]:
    return entry["data"], entry["images"], entry["classes"], entry["train_per_class"]


def _accuracy(entry: dict[str, Any]) -> str:
    spread = entry["standard_deviation"]
    return f"{100 * entry['mean']:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}")
