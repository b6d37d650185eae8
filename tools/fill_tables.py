"""Writes every results/TABLE/table.md from its runs, and the figures of README.md and docs/, so that nobody types one.

    python tools/fill_tables.py            writes
    python tools/fill_tables.py --check    exit status 1 if a file is not as it would be written

What stands between `<!-- figures: NAME -->` and `<!-- end -->` is replaced by the figures of that name.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from epitomic.files import read_json
from epitomic.models.pretrained import CONFIG, SHIPPED, WEIGHTS, list_pretrained
from epitomic.reproduction.render import percent, render, short_commit
from epitomic.reproduction.results import Finished, Sample, by_model, finished
from epitomic.reproduction.tables import TABLES
from epitomic.training.recipes import get_recipe

ROOT = Path(__file__).parents[1]
MACHINES = {"EPYC (AVX2)": "epyc-2-cores", "Xeon (AVX-512)": "xeon-2-cores"}  # of the timings
PAPER = {
    ("mnist", "epitomic_small"): "0.44",
    ("cifar10", "epitomic_small"): "9.43",
}
Rows = list[dict[str, str]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    changed = []

    def write(path: Path, text: str) -> None:
        if text != path.read_text():
            changed.append(path.relative_to(ROOT))
            if not check:
                path.write_text(text)

    for name, table in TABLES.items():
        if (ROOT / "results" / name).is_dir():
            write(ROOT / "results" / name / "table.md", render(name, table, _runs(name)))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        block = partial(_block, above="../" if path.parent.name == "docs" else "")
        filled = re.sub(r"(<!-- figures: (.+?) -->\n).*?(<!-- end -->)", block, path.read_text(), flags=re.DOTALL)
        write(path, filled)
    for path in changed:
        print(f"{path} {'is not what results/ say: run python tools/fill_tables.py' if check else 'written'}")
    return 1 if check and changed else 0


def _block(match: re.Match[str], above: str) -> str:
    name, *arguments = match[2].split()
    figures = FIGURES[name](*arguments).replace("](results/", f"]({above}results/")
    return f"{match[1]}{figures}{match[3]}"


def _runs(name: str) -> list[Finished]:
    """Of a table of trainings."""
    return finished(TABLES[name], ROOT / "results" / name, get_recipe(TABLES[name].recipe))


def _read(path: Path) -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def claim() -> str:
    """The README's first lines."""
    speed = {
        (machine, row["name"]): f"1/{float(row['speedup']):.1f}"
        for machine in MACHINES.values()
        for row in _layers(machine)
        if _is(row, "training", "native")
    }
    two, six = ([speed[m, f"paper layer {number}"] for m in MACHINES.values()] for number in (2, 6))
    first, second = MACHINES
    share = next(row["share"] for row in _networks("epyc-2-cores") if row["network"] == "epitomic")
    fast = by_model(_runs("cifar10_fast"))["epitomic_fast"]
    viewed, plain = (percent(Sample([run.error(way) for run in fast])) for way in ("test", "plain"))
    return (
        f"A training step of the paper's layer 2 takes {two[0]} of the time of conv2d + max_pool2d with the same "
        f"input, filters, window and output size on two cores of an {first}, {two[1]} on those of a {second}; layer 6 "
        f"{six[0]} and {six[1]}; the paper's whole ImageNet network {float(share):.2f} of its max-pooled twin's on the "
        f"first. "
        f"A small network around the layer reaches a test error of {viewed} % on CIFAR-10 ({plain} % without averaged "
        f"views; {len(fast)} seeds) in {_core_minutes(fast)} core minutes.\n"
    )


def _layers(machine: str) -> Rows:
    return _read(ROOT / f"results/layers-{machine}/bench.csv")


def _networks(machine: str) -> Rows:
    return _read(ROOT / f"results/networks-{machine}/networks.csv")


def _measured(rows: Rows) -> str:
    """Where a file of timings says it: at which commit."""
    commit = rows[0].get("commit")
    return f"\nAt commit {commit[:7]}, {rows[0]['n']} repetitions.\n" if commit else ""


def layers_summary(machine: str) -> str:
    """One line a layer."""
    head = "layer|training, native|forward, native|training, torch calls only|memory, native|memory, torch calls only"
    return _markdown(head.split("|"), _summary_rows(_layers(machine))) + _measured(_layers(machine))


def _summary_rows(rows: Rows) -> Iterator[list[str]]:
    for first in (row for row in rows if _is(row, "training", "native")):
        same = [row for row in rows if row["name"] == first["name"]]
        forward, torch_calls = (next(row for row in same if _is(row, *kind)) for kind in (_FORWARD, _TORCH))
        stride = f" e {first['epitome_stride']}" if first["epitome_stride"] != "1" else ""
        shape = f"{first['in_channels']}->{first['out_channels']} W {first['kernel']} D {first['pool']}{stride}"
        name = f"{first['name']}: {shape}, {first['size']} px, batch {first['batch']}"
        cells = [name, f"**{_speedup(first)}**", _speedup(forward), _speedup(torch_calls)]
        yield [*cells, _memory(first), _memory(torch_calls)]


_FORWARD, _TORCH = ("forward", "native"), ("training", "winograd")


def layers(machine: str) -> str:
    """Everything measured of each layer."""
    head = "layer||algorithm|pair, ms|ours, ms|speed-up (quartiles)|GFLOP/s|of the best GEMM|memory"
    rows = (
        [
            *(row["name"], row["mode"], row["algorithm"] + (" + norm" if row["normalize"] == "True" else "")),
            *(f"{float(row['pair_ms']):.0f}", f"{float(row['ms']):.0f}", _speedup(row)),
            *(f"{float(row['gflops']):.0f}", f"{float(row['gflops']) / float(row['best_gemm_gflops']):.0%}"),
            _memory(row),
        ]
        for row in _layers(machine)
    )
    return _markdown(head.split("|"), rows) + _measured(_layers(machine))


def networks(machine: str) -> str:
    """A training step of whole networks."""
    head = "network|twin|input|twin, ms|ours, ms|time of the twin's (quartiles)"
    rows = (
        [
            *(row["network"], row["twin"], row["input"], f"{float(row['twin_ms']):.0f}", f"{float(row['ms']):.0f}"),
            f"{float(row['share']):.2f} ({float(row['share_q1']):.2f}-{float(row['share_q3']):.2f})",
        ]
        for row in _networks(machine)
    )
    return _markdown(head.split("|"), rows) + _measured(_networks(machine))


def result(name: str) -> str:
    """A table of trainings, without the list of single runs."""
    path = ROOT / "results" / name / "table.md"
    summary = path.read_text().partition("\n<details>")[0]
    return f"{summary}\nEvery run: [results/{name}/table.md](results/{name}/table.md).\n"


def small_images() -> str:
    """The tables of MNIST and CIFAR-10 in one: a line a network."""
    rows = []
    for name in (
        name for name in TABLES if name.startswith(("mnist", "cifar10")) and (ROOT / "results" / name).is_dir()
    ):
        for model, runs in by_model(_runs(name)).items():
            viewed = all("plain" in run.results for run in runs)
            rows.append(
                [
                    f"`{name}`",
                    f"`{model}`",
                    PAPER.get((name, model), ""),
                    percent(Sample([run.error() for run in runs])),
                    percent(Sample([run.error("plain") for run in runs])) if viewed else "",
                    str(len(runs)),
                    _core_minutes(runs),
                ]
            )
    head = "table|network|the paper, %|test error, %|without averaged views, %|seeds|core minutes a run"
    return _markdown(head.split("|"), iter(rows))


def weights() -> str:
    """What ships with the package: a line a network."""
    rows, published = [], [run for table in TABLES for run in _runs(table)]
    for name in list_pretrained():
        model, _, images = name.partition("-")
        trained = read_json(SHIPPED / name / CONFIG)["trained"]
        (run,) = (run for run in published if all(run.facts[key] == trained[key] for key in ("command", "commit")))
        size = (SHIPPED / name / WEIGHTS).stat().st_size / 1e6
        errors = [f"{100 * run.error(way):.2f}" for way in ("test", "plain")]
        load = f'`create_model("{model}", pretrained="{images}")`'
        rows.append([f"`{name}`", load, *errors, f"{run.results['parameters']:,}", f"{size:.1f}"])
    head = "name|in Python|test error, %|without averaged views, %|parameters|MB"
    return _markdown(head.split("|"), iter(rows))


def _core_minutes(runs: list[Finished]) -> str:
    return f"{statistics.median(run.results['cpu_seconds'] for run in runs) / 60:.0f}"


def _is(row: dict[str, str], mode: str, algorithm: str) -> bool:
    return row["mode"] == mode and row["algorithm"] == algorithm and row["normalize"] == "False"


def _speedup(row: dict[str, str]) -> str:
    return f"{float(row['speedup']):.2f} ({float(row['speedup_q1']):.2f}-{float(row['speedup_q3']):.2f})"


def _memory(row: dict[str, str]) -> str:
    return f"{float(row['memory_bytes']) / float(row['pair_memory_bytes']):.2f}" if row["memory_bytes"] else ""


def _markdown(head: list[str], rows: Iterator[list[str]]) -> str:
    return "".join("| " + " | ".join(line) + " |\n" for line in (head, ["---"] * len(head), *rows))


def reconstruction() -> str:
    """Errors of images put back together from the first layer's matches: a line a network."""
    kept = {path.stem: read_json(path) for path in sorted((ROOT / "results/reconstruction").glob("*.json"))}
    head = "network|images|best match of a patch|4 best|all, by response|commit|command"
    rows = (
        [
            f"`{name}`",
            str(entry["images"]),
            *(f"{error['mean']:.3f} ± {error['standard_deviation']:.3f}" for error in entry["errors"].values()),
            short_commit(entry["facts"]),
            f"`{entry['facts']['command']}`",
        ]
        for name, entry in kept.items()
    )
    return _markdown(head.split("|"), rows)


FIGURES: dict[str, Callable[..., str]] = {
    "claim": claim,
    "layers-summary": layers_summary,
    "layers": layers,
    "networks": networks,
    "result": result,
    "small-images": small_images,
    "weights": weights,
    "reconstruction": reconstruction,
}

if __name__ == "__main__":
    sys.exit(main())
