"""The figures about the speed of layers and networks, from the timings in results/."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from records import RESULTS, Rows, read_csv

from epitomic.bench.cases import FUSED
from epitomic.support.console import markdown_table


def layer_rows(machine: str) -> Rows:
    return read_csv(RESULTS / f"layers-{machine}" / "bench.csv")


def network_rows(machine: str) -> Rows:
    return read_csv(RESULTS / f"networks-{machine}" / "networks.csv")


def layers_summary(machine: str) -> str:
    """The speed-up and the memory of each layer, one line a layer."""
    head = (
        *("layer", "training, native kernel", "forward, native kernel", "training, torch calls only"),
        *("memory, native kernel", "memory, torch calls only"),
    )
    rows = layer_rows(machine)
    return markdown_table(head, summary_cells(rows)) + measured(rows)


def summary_cells(rows: Rows) -> Iterator[list[str]]:
    for training in (row for row in rows if is_kind(row, "training", "native")):
        same = [row for row in rows if row["name"] == training["name"]]
        forward = next(row for row in same if is_kind(row, "forward", "native"))
        torch_calls = next(row for row in same if is_kind(row, "training", "winograd"))
        stride = f" e {training['epitome_stride']}" if training["epitome_stride"] != "1" else ""
        shape = (
            f"{training['in_channels']}->{training['out_channels']} W {training['kernel']} D {training['pool']}{stride}"
        )
        name = f"{training['name']}: {shape}, {training['size']} px, batch {training['batch']}"
        cells = [name, f"**{quartiles(training, 'speedup')}**", quartiles(forward, "speedup")]
        yield [*cells, quartiles(torch_calls, "speedup"), memory(training), memory(torch_calls)]


def pairs(machine: str) -> str:
    """Our fused pair and our epitomic layer against torch's pair in its best form, one line a layer."""
    head = (
        *("layer", "fused pair, training", "epitomic, training", "fused pair, forward", "epitomic, forward"),
        *("step of the fused pair / epitomic", "memory of the fused pair", "torch's best form"),
    )
    rows = read_csv(RESULTS / f"pairs-{machine}" / "bench.csv")
    return markdown_table(head, pair_cells(rows)) + measured(rows)


def pair_cells(rows: Rows) -> Iterator[list[str]]:
    for name in dict.fromkeys(row["name"] for row in rows):
        same = [row for row in rows if row["name"] == name]
        fused, ours = (
            {mode: next(row for row in same if is_kind(row, mode, kind)) for mode in ("training", "forward")}
            for kind in (FUSED, "auto")
        )
        speeds = (quartiles(kind[mode], "speedup") for mode in ("training", "forward") for kind in (fused, ours))
        share = float(fused["training"]["ms"]) / float(ours["training"]["ms"])
        yield [name, *speeds, f"{share:.2f}", memory(fused["training"]), fused["training"]["pair_format"]]


def layers(machine: str) -> str:
    """Everything that was measured of each layer."""
    head = (
        *("layer", "mode", "algorithm", "pair, ms", "ours, ms", "speed-up (quartiles)"),
        *("GFLOP/s", "share of the best GEMM", "memory"),
    )
    rows = layer_rows(machine)
    cells = (
        [
            *(row["name"], row["mode"], row["algorithm"] + (" + norm" if row["normalize"] == "True" else "")),
            *(f"{float(row['pair_ms']):.0f}", f"{float(row['ms']):.0f}", quartiles(row, "speedup")),
            *(f"{float(row['gflops']):.0f}", f"{float(row['gflops']) / float(row['best_gemm_gflops']):.0%}"),
            memory(row),
        ]
        for row in rows
    )
    return markdown_table(head, cells) + measured(rows)


def networks(machine: str) -> str:
    """A training step of whole networks."""
    rows = network_rows(machine)
    head = ("network", "twin", "input", "twin, ms", "ours, ms", "our time / twin's (quartiles)")
    cells = (
        [
            *(row["network"], row["twin"], row["input"], f"{float(row['twin_ms']):.0f}", f"{float(row['ms']):.0f}"),
            quartiles(row, "share"),
        ]
        for row in rows
    )
    return markdown_table(head, cells) + measured(rows)


def plain(machine: str) -> str:
    """A training step of plain layers and of a VGG-11, against torch's best form."""
    rows = read_csv(RESULTS / f"plain-{machine}.csv")
    head = ("layer or network", "torch, ms", "ours, ms", "speed-up (quartiles)", "torch's best form")
    cells = [[row[name] for name in ("name", "torch_ms", "ms", "speedup", "torch_form")] for row in rows]
    return f"{markdown_table(head, cells)}\nMeasured at commit {rows[0]['commit'][:7]}.\n"


def grid(machine: str) -> str:
    """What `auto` loses and wins over a grid of pairs and plain layers, in one table line each."""
    head = ("kind", "geometries", "slowest `auto`", "median", "fastest", "below 0.95 of torch")
    rows = read_csv(RESULTS / f"grid-{machine}.csv")
    cells = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        speeds = sorted(float(row["auto"]) for row in rows if row["kind"] == kind)
        figures = (f"{speed:.2f}x" for speed in (speeds[0], statistics.median(speeds), speeds[-1]))
        cells.append([kind, str(len(speeds)), *figures, str(sum(speed < 0.95 for speed in speeds))])
    return f"{markdown_table(head, cells)}\nMeasured at commit {rows[0]['commit'][:7]}.\n"


def measured(rows: Rows) -> str:
    """Says at which commit timings were made, if their file has it."""
    commit = rows[0].get("commit")
    return f"\nMeasured at commit {commit[:7]} with {rows[0]['n']} repetitions.\n" if commit else ""


def is_kind(row: dict[str, str], mode: str, algorithm: str) -> bool:
    return (row["mode"], row["algorithm"], row["normalize"]) == (mode, algorithm, "False")


def quartiles(row: dict[str, str], name: str) -> str:
    return f"{float(row[name]):.2f} ({float(row[f'{name}_q1']):.2f}-{float(row[f'{name}_q3']):.2f})"


def memory(row: dict[str, str]) -> str:
    return f"{float(row['memory_bytes']) / float(row['pair_memory_bytes']):.2f}" if row["memory_bytes"] else ""


FIGURES: dict[str, Callable[..., str]] = {
    "layers-summary": layers_summary,
    "layers": layers,
    "pairs": pairs,
    "networks": networks,
    "plain": plain,
    "grid": grid,
}
