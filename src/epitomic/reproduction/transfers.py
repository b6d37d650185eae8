"""The table of a transfer experiment, from what `epitomic transfer --out` kept of each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epitomic.files import read_json
from epitomic.reproduction.render import made, markdown, short_commit

HEAD = ("features", "of", "numbers", "linear, %", "rbf, %")


def render(folder: Path) -> str:
    """All runs of a folder: a row for each kind of features, a column for each kernel."""
    kept = {path.stem: read_json(path) for path in sorted(folder.glob("*.json"))}
    entries = [(run, entry) for run, results in kept.items() for entry in results.values()]
    sets = sorted({_set(entry) for _, entry in entries})
    splits = sorted({len(entry["accuracies"]) for _, entry in entries})
    text = (
        "Mean per-class accuracy of a support vector machine on features: mean and standard deviation over "
        f"{' or '.join(map(str, splits))} random splits; {made([entry['facts'] for _, entry in entries])}.\n"
    )
    for data, images, classes, per_class in sets:
        text += f"\n{data}: {images:,} images of {classes} classes, {per_class} of each to train on.\n\n"
        rows: dict[tuple[str, str], list[str]] = {}
        for run, entry in entries:
            if _set(entry) == (data, images, classes, per_class):
                row = rows.setdefault((entry["features"], run), [f"{entry['numbers']:,}", "", ""])
                row[1 + ("linear", "rbf").index(entry["kernel"])] = _percent(entry)
        text += markdown(HEAD, [[kind, f"`{run}`", *row] for (kind, run), row in sorted(rows.items())])
    commands = sorted({(short_commit(e["facts"]), f"`{e['facts']['command']}`") for _, e in entries})
    lines = markdown(("commit", "command"), commands)
    return f"{text}\n<details><summary>Commands</summary>\n\n{lines}\n</details>\n"


def _set(entry: dict[str, Any]) -> tuple[str, int, int, int]:
    return entry["data"], entry["images"], entry["classes"], entry["train_per_class"]


def _percent(entry: dict[str, Any]) -> str:
    spread = entry["standard_deviation"]
    return f"{100 * entry['mean']:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}")
