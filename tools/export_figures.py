"""The figures about exported layers and networks, from results/exported-*."""

from __future__ import annotations

from collections.abc import Callable

import torch
from records import RESULTS, Rows, read_csv

from epitomic import EpitomicConv2d
from epitomic.bench.cases import CASES
from epitomic.support.console import markdown_table
from epitomic.surgery.exporting import export_form


def exported_layers(machine: str) -> str:
    """Layers and networks in ONNX Runtime: how much faster each form is than the max-pooled counterpart."""
    rows = read_csv(RESULTS / f"exported-{machine}" / "export_forms.csv")
    forms = list(dict.fromkeys(row["form"] for row in rows if row["form"] != "pair"))
    lines = []
    for name, batch in dict.fromkeys((row["name"], row["batch"]) for row in rows):
        here = {row["form"]: row for row in rows if (row["name"], row["batch"]) == (name, batch)}
        cells = (speed(here[f]) if f in here else "" for f in forms)
        lines.append((name, batch, here["pair"]["ms"], *cells, chosen_form(name)))
    return export_facts(rows) + markdown_table(
        ("what", "batch", "pair, ms", *(f"`{f}`" for f in forms), "chosen"), lines
    )


def chosen_form(name: str) -> str:
    """Returns the form that the rule takes for a layer; a network has several."""
    if name not in CASES:
        return ""
    case = CASES[name]
    with torch.device("meta"):
        layer = EpitomicConv2d(case.in_channels, case.out_channels, **case.arguments)  # type: ignore[arg-type]
    return f"`{export_form(layer)}`"


def export_facts(rows: Rows) -> str:
    row = rows[0]
    runtime = f"ONNX Runtime {row['onnxruntime']}, {row['threads_of_runtime']} threads"
    return f"\n{runtime}, {row['cpu']}, measured at commit {row['commit'][:7]}. Median (quartiles).\n\n"


def speed(row: dict[str, str]) -> str:
    return f"{float(row['speedup']):.2f} ({float(row['low']):.2f}-{float(row['high']):.2f})"


def quantised(machine: str) -> str:
    """The shipped weights in float32 and in int8: test error in ONNX Runtime, and times if they were measured."""
    folder = RESULTS / f"exported-{machine}"
    rows = read_csv(folder / "int8_errors.csv")
    timed = read_csv(folder / "int8_times.csv") if (folder / "int8_times.csv").is_file() else []
    batches = list(dict.fromkeys(row["batch"] for row in timed))
    cells = {
        (row["name"], row["kind"], row["batch"]): f"{row['ms']} ms" if row["kind"] == "float32" else speed(row)
        for row in timed
    }
    lines = [
        (
            *(f"`{row['name']}`", row["kind"], f"{100 * float(row['error']):.2f}", row["mb"]),
            *(cells.get((row["name"], row["kind"], batch), "") for batch in batches),
        )
        for row in rows
    ]
    head = ("weights", "kind", "test error, %", "MB", *(f"speedup, batch {batch}" for batch in batches))
    said = export_facts(timed) if timed else "\nThe time of int8 is not measured yet.\n\n"
    return said + markdown_table(head, lines)


FIGURES: dict[str, Callable[..., str]] = {
    "exported-layers": exported_layers,
    "quantised": quantised,
}
