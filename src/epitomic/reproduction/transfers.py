"""The table of a transfer experiment, from what `epitomic transfer --out` kept of each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epitomic.files import read_json
from epitomic.reproduction.render import made, markdown

HEAD = ("features", "of", "numbers", "linear, %", "rbf, %")


def render(folder: Path) -> str:
    """All runs of a folder: a row for each kind of features, a column for each kernel."""
    kept = {path.stem: read_json(path) for path in sorted(folder.glob("*.json"))}
    entries = [(run, entry) for run, one in kept.items() for entry in one["results"].values()]
    sets = sorted({(e["data"], e["images"], e["classes"], e["train_per_class"]) for _, e in entries})
    splits = sorted({len(entry["accuracies"]) for _, entry in entries})
    text = (
        "Mean per-class accuracy of a support vector machine on features: mean and standard deviation over "
        f"{' or '.join(map(str, splits))} random splits; {made([one['facts'] for one in kept.values()])}.\n"
    )
    for data, images, classes, per_class in sets:
        text += f"\n{data}: {images:,} images of {classes} classes, {per_class} of each to train on.\n\n"
        rows: dict[tuple[str, str], list[str]] = {}
        for run, entry in entries:
            if (entry["data"], entry["train_per_class"]) == (data, per_class):
                row = rows.setdefault((entry["features"], run), [f"{entry['numbers']:,}", "", ""])
                row[1 + ("linear", "rbf").index(entry["kernel"])] = _percent(entry)
        text += markdown(HEAD, [[kind, f"`{run}`", *row] for (kind, run), row in sorted(rows.items())])
    commands = sorted({(str(entry["commit"])[:8], entry["command"]) for _, entry in entries})
    lines = markdown(("commit", "command"), [[commit, f"`{command}`"] for commit, command in commands])
    return f"{text}\n<details><summary>Commands</summary>\n\n{lines}\n</details>\n"


def _percent(entry: dict[str, Any]) -> str:
    spread = entry["standard_deviation"]
    return f"{100 * entry['mean']:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}")
