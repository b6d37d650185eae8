"""Writes each results/TABLE/table.md from its runs, and the figures of README.md and docs/, so that nobody types them.

    python tools/fill_tables.py            writes the files
    python tools/fill_tables.py --check    writes nothing; the exit status is 1 if a file is out of date

The text between `<!-- figures: NAME -->` and `<!-- end -->` is replaced by what the function of that name returns.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import claim_figures  # beside this file
import input_figures
import own_figures
import torch

from epitomic import EpitomicConv2d
from epitomic.bench.cases import CASES, FUSED
from epitomic.data.photographs.open import PHOTOGRAPHS
from epitomic.evaluation import OTHER_WAYS
from epitomic.models.pretrained import CONFIG, SHIPPED, WEIGHTS, list_pretrained
from epitomic.reproduction.accuracy_table import OverSeeds, accuracy_table
from epitomic.reproduction.finished_runs import FinishedRun, by_model, read_runs
from epitomic.reproduction.table_plans import TABLES
from epitomic.reproduction.transfer_plans import TRANSFERS
from epitomic.reproduction.transfer_table import read_entries, transfer_table
from epitomic.support.console import markdown_table
from epitomic.support.files import read_json
from epitomic.support.machine import short_commit
from epitomic.surgery.exporting import export_form
from epitomic.training.recipes import get_recipe

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
MACHINES = {
    "EPYC (AVX2)": "epyc-2-cores",
    "Xeon (AVX-512)": "xeon-2-cores",
}  # name -> end of the folders of its timings
FUSED_MACHINE = ("EPYC (AVX-512)", "epyc-avx512-2-cores")  # where our fused pair was timed
PAPER = {("mnist", "epitomic_small"): "0.44", ("cifar10", "epitomic_small"): "9.43"}  # Table 6, test error in %
# Tables 4 and 5: top-5 error on ImageNet and mean accuracy on Caltech-101, in %.
PAPER_PHOTOGRAPHS = {
    "maxpool": ("14.2", "87.3"),
    "maxpool_norm": ("14.4", "85.3"),
    "epitomic": ("13.7", "87.8"),
    "epitomic_norm": ("13.6", "87.4"),
    "topographic_norm": ("15.4", "85.8"),
    "alexnet": ("18.2", ""),
}
SIZES = ("in_channels", "out_channels", "kernel", "pool", "stride", "size", "batch", "epitome_stride")  # columns of CSV
Rows = list[dict[str, str]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, only report files that are out of date")
    check = parser.parse_args().check
    changed = []

    def write(path: Path, text: str) -> None:
        if text != path.read_text():
            changed.append(path.relative_to(ROOT))
            if not check:
                path.write_text(text)

    for name in published_tables():
        write(RESULTS / name / "table.md", accuracy_table(TABLES[name], finished_runs(name)))
    for folder in sorted(RESULTS.glob("caltech101*")):
        write(folder / "table.md", transfer_table(folder))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        fill = partial(fill_block, page=path)
        write(path, re.sub(r"(<!-- figures: (.+?) -->\n).*?(<!-- end -->)", fill, path.read_text(), flags=re.DOTALL))
    for path in changed:
        print(f"{path} {'is out of date: run python tools/fill_tables.py' if check else 'written'}")
    return 1 if check and changed else 0


def fill_block(match: re.Match[str], page: Path) -> str:
    """Returns a block with its figures; links to results/ are made relative to the page."""
    name, *arguments = match[2].split()
    figures = FIGURES[name](*arguments).replace("](results/", f"]({os.path.relpath(RESULTS, page.parent)}/")
    return f"{match[1]}{figures}{match[3]}"


def published_tables() -> list[str]:
    return [name for name in TABLES if (RESULTS / name).is_dir()]


def finished_runs(name: str) -> list[FinishedRun]:
    """Returns the finished runs of an accuracy table."""
    return read_runs(TABLES[name], RESULTS / name, get_recipe(name))


def read_csv(path: Path) -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def layer_rows(machine: str) -> Rows:
    return read_csv(RESULTS / f"layers-{machine}" / "bench.csv")


def network_rows(machine: str) -> Rows:
    return read_csv(RESULTS / f"networks-{machine}" / "networks.csv")


def highlights() -> str:
    """The README's figures: one layer, a whole network, and accuracy in the same time and in the same epochs."""
    speeds = {
        (machine, row["name"]): float(row["speedup"])
        for machine, folder in MACHINES.items()
        for row in layer_rows(folder)
        if is_kind(row, "training", "native")
    }
    layer = [f"{speeds[machine, 'paper layer 2']:.1f}x {{}}on {machine}" for machine in MACHINES]
    imagenet = next(
        1 / float(row["share"]) for row in network_rows(MACHINES["EPYC (AVX2)"]) if row["network"] == "epitomic"
    )
    fused = [
        float(row["speedup"])
        for row in read_csv(RESULTS / f"pairs-{FUSED_MACHINE[1]}" / "bench.csv")
        if is_kind(row, "training", FUSED)
    ]
    later = {
        (row["network"], row["twin"]): 1 / float(row["share"])
        for row in network_rows(FUSED_MACHINE[1])
        if row["input"].startswith("3 x 220")
    }
    short = by_model(finished_runs("cifar10_short"))
    longer = by_model(finished_runs("cifar10_equal_time"))["epitomic_small"]
    same_epochs, pooled, same_time = (
        f"{OverSeeds([run.error() for run in runs])} %"
        for runs in (short["epitomic_small"], short["maxpool_small"], longer)
    )
    rows = [
        (
            "a training step of the paper's layer 2",
            "conv2d + max_pool2d of equal output",
            f"{', '.join(layer).format('faster ', '')}; {span(speeds.values())} over six layers",
        ),
        (
            "a training step of the paper's ImageNet network",
            "its max-pooled twin of torch's layers",
            f"{imagenet:.1f}x faster on EPYC (AVX2), {later['epitomic', 'maxpool@torch']:.1f}x on {FUSED_MACHINE[0]}, "
            f"there {later['epitomic', 'maxpool']:.1f}x if the twin has our layers too",
        ),
        (
            "`MaxPoolConv2d`, the same function as convolution + max-pooling",
            "torch's pair in its best form",
            f"a training step {span(fused)} as fast over {len(fused)} layers on {FUSED_MACHINE[0]}",
        ),
        (
            f"test error on CIFAR-10, {len(longer)} seeds",
            f"max-pooling: {pooled}",
            f"{same_time} in the same time (max-pooling by torch's own layers), {same_epochs} in the same epochs",
        ),
    ]
    return markdown_table(("epitomic", "compared with", "result"), rows)


def span(speeds: Iterable[float]) -> str:
    low, *_, high = sorted(speeds)
    return f"{low:.1f}x to {high:.1f}x"


def measured(rows: Rows) -> str:
    """Says at which commit timings were made, if their file has it."""
    commit = rows[0].get("commit")
    return f"\nMeasured at commit {commit[:7]} with {rows[0]['n']} repetitions.\n" if commit else ""


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


def result(name: str) -> str:
    """A table of results/ without its list of single runs; nothing if no run is finished yet."""
    if not (RESULTS / name / "table.md").is_file():
        return f"No run of `{name}` is finished yet.\n"
    summary = (RESULTS / name / "table.md").read_text().partition("\n<details>")[0]
    return f"{summary}\nEvery run: [results/{name}/table.md](results/{name}/table.md).\n"


def small_images() -> str:
    """The tables of MNIST and CIFAR-10 in one (Table 6), one line a network."""
    head = (
        *("table", "network", "paper's test error, %", "test error, %", "without averaged views, %"),
        *("seeds", "core minutes per run"),
    )
    rows = []
    for name in (name for name in published_tables() if get_recipe(name).data.name not in PHOTOGRAPHS):
        for model, runs in by_model(finished_runs(name)).items():
            viewed = all("plain" in run.results for run in runs)
            errors = [str(OverSeeds([run.error() for run in runs]))]
            errors.append(str(OverSeeds([run.error("plain") for run in runs])) if viewed else "")
            minutes = statistics.median(run.results["cpu_seconds"] for run in runs) / 60
            paper = PAPER.get((name, model), "")
            rows.append([f"`{name}`", f"`{model}`", paper, *errors, str(len(runs)), f"{minutes:.0f}"])
    return markdown_table(head, rows)


def weights() -> str:
    """The weights that the package ships, one line a network."""
    rows, published = [], [run for name in published_tables() for run in finished_runs(name)]
    for name in list_pretrained():
        model, _, images = name.partition("-")
        trained = read_json(SHIPPED / name / CONFIG)["trained"]
        (run,) = (run for run in published if all(run.facts[key] == trained[key] for key in ("command", "commit")))
        size = (SHIPPED / name / WEIGHTS).stat().st_size / 1e6
        one = next(way for way in OTHER_WAYS if way in run.results)
        errors = [f"{100 * run.error(way):.2f}" for way in ("test", one)]
        load = f'`create_model("{model}", pretrained="{images}")`'
        rows.append([f"`{name}`", load, *errors, f"{run.results['parameters']:,}", f"{size:.1f}"])
    return markdown_table(("name", "in Python", "test error, %", "one view, %", "parameters", "MB"), rows)


def reconstruction() -> str:
    """The errors of images rebuilt from the first layer's matches, one line a network."""
    head = (
        *("network", "images", "best match of each patch", "4 best matches", "all matches, weighted by response"),
        *("commit", "command"),
    )
    rows = []
    for path in sorted((RESULTS / "reconstruction").glob("*.json")):
        entry = read_json(path)
        errors = [f"{error['mean']:.3f} ± {error['standard_deviation']:.3f}" for error in entry["errors"].values()]
        facts = entry["facts"]
        rows.append([f"`{path.stem}`", str(entry["images"]), *errors, short_commit(facts), f"`{facts['command']}`"])
    return markdown_table(head, rows)


IMAGENETTE = "ten classes instead of 1,000 and top-1 instead of top-5 error; "
REASONS = {  # why our figures differ from the paper's
    "imagenette": IMAGENETTE + "9,469 images instead of 1.2 million, of 128 pixels; a quarter of the width; 16 epochs",
    "tiny_imagenet": "a hundred classes; 50,000 images of 64 pixels; a quarter of the width; 12 epochs",
    "transfer": "pretrained on {}, as above; 1,024 features instead of 4,096; images of 112 pixels or less",
    "mnist": "the paper mentions no batch normalisation, label smoothing or averaged weights; it gives no layer sizes",
    "cifar10": "the same; we also whiten, shift and mirror the images",
}


def paper_numbers() -> str:
    """Tables 4 to 6 of the paper beside our figures: one row per network, with the reasons for the differences."""
    rows = []
    for name, title in claim_figures.PHOTOGRAPHS.items():
        trained = by_model(finished_runs(name)) if name in published_tables() else {}
        for model in (model for model in PAPER_PHOTOGRAPHS if model in trained):
            paper, top5 = PAPER_PHOTOGRAPHS[model][0], name == "tiny_imagenet"
            ours = str(OverSeeds([run.top5_error if top5 else run.error() for run in trained[model]]))
            what = f"{title}, 10-crop {'top-5 ' * top5}error"
            rows.append(["Table 4", f"`{model}`", "ImageNet, top-5 error", paper, what, ours, REASONS[name]])
    for name, plan in TRANSFERS.items():
        entries = transfer_entries(name)
        for model, (_, accuracy) in PAPER_PHOTOGRAPHS.items():
            means = [
                entry["mean"]
                for run, entry in entries
                if (run.rpartition("-")[0], entry["features"], entry["kernel"]) == (model, "network", "linear")
            ]
            if means and accuracy:
                title = claim_figures.PHOTOGRAPHS[plan.source]
                what = f"networks of {title}, linear kernel, {len(means)} seed{'s' * (len(means) > 1)}"
                reason = REASONS["transfer"].format(title)
                ours = str(OverSeeds(means))
                rows.append(["Table 5", f"`{model}`", "Caltech-101, mean accuracy", accuracy, what, ours, reason])
    for (name, model), error in PAPER.items():
        runs = by_model(finished_runs(name))[model]
        way = "plain" if all("plain" in run.results for run in runs) else "test"
        ours = str(OverSeeds([run.error(way) for run in runs]))
        images = {"mnist": "MNIST", "cifar10": "CIFAR-10"}[name]
        what = f"{images}, one view of each image"
        rows.append(["Table 6", f"`{model}`", f"{images}, test error", error, what, ours, REASONS[name]])
    reasons = [row[-1] for row in rows]
    for row, before in zip(rows[1:], reasons, strict=False):
        row[-1] = "" if row[-1] == before else row[-1]  # a reason stands in the first row that it is for
    head = ("table", "network", "the paper", "its figure, %", "ours", "our figure, %", "why they differ")
    return markdown_table(head, rows)


def transfer_entries(name: str) -> list[tuple[str, dict[str, Any]]]:
    return read_entries(RESULTS / name) if (RESULTS / name).is_dir() else []


def is_kind(row: dict[str, str], mode: str, algorithm: str) -> bool:
    return (row["mode"], row["algorithm"], row["normalize"]) == (mode, algorithm, "False")


def quartiles(row: dict[str, str], name: str) -> str:
    return f"{float(row[name]):.2f} ({float(row[f'{name}_q1']):.2f}-{float(row[f'{name}_q3']):.2f})"


def memory(row: dict[str, str]) -> str:
    return f"{float(row['memory_bytes']) / float(row['pair_memory_bytes']):.2f}" if row["memory_bytes"] else ""


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


def export_facts(rows: Rows) -> str:
    row = rows[0]
    runtime = f"ONNX Runtime {row['onnxruntime']}, {row['threads_of_runtime']} threads"
    return f"\n{runtime}, {row['cpu']}, measured at commit {row['commit'][:7]}. Median (quartiles).\n\n"


def speed(row: dict[str, str]) -> str:
    return f"{float(row['speedup']):.2f} ({float(row['low']):.2f}-{float(row['high']):.2f})"


def gpu_kernels() -> str:
    """Registers, spills and shared memory of the Triton kernels, as they were compiled for each GPU."""
    rows = read_csv(RESULTS / "gpu" / "kernels.csv")
    targets = dict.fromkeys(row["target"] for row in rows)
    lines = []
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        cells = [f"`{kernel}`"]
        for target in targets:
            own = [row for row in rows if (row["kernel"], row["target"]) == (kernel, target)]
            registers, shared = (max(int(row[name]) for row in own) for name in ("registers", "shared"))
            spilled = sum(int(row["spills"]) > 0 for row in own)
            cells += [f"{registers}, {shared / 1024:.0f} KiB", f"{spilled} of {len(own)}"]
        lines.append(cells)
    head = ["kernel", *(cell for target in targets for cell in (target, "spilled"))]
    return markdown_table(head, lines)


def gpu_model() -> str:
    """A training step of two layers on two GPUs, worked out."""
    rows = read_csv(RESULTS / "gpu" / "model.csv")
    lines = [
        (
            f"{row['layer']}, {row['precision']}, {row['gpu']}",
            *(f"{float(row[name]):.2f}" for name in ("pair", "direct", "fused", "winograd")),
            f"{float(row['fused']) / float(row['pair']):.2f}",
        )
        for row in rows
    ]
    return markdown_table(
        ("layer", "conv2d + max_pool2d", "`direct`", "`triton`", "`triton_winograd`", "`triton` / pair"), lines
    )


FIGURES: dict[str, Callable[..., str]] = {
    "exported-layers": exported_layers,
    "quantised": quantised,
    "gpu-kernels": gpu_kernels,
    "gpu-model": gpu_model,
    "highlights": highlights,
    "layers-summary": layers_summary,
    "layers": layers,
    "pairs": pairs,
    "networks": networks,
    "plain": plain,
    "grid": grid,
    "result": result,
    "small-images": small_images,
    "weights": weights,
    "reconstruction": reconstruction,
    "paper-numbers": paper_numbers,
    **claim_figures.FIGURES,
    **input_figures.FIGURES,
    **own_figures.FIGURES,
}

if __name__ == "__main__":
    sys.exit(main())
