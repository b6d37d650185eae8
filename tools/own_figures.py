"""The figures about a user's own images, from results/own-images, which benchmarks/own_images.py makes."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from epitomic.analysis.error_rates import wilson
from epitomic.models.class_names import readable
from epitomic.models.pretrained import CONFIG, find_pretrained
from epitomic.support.console import counted, markdown_table, percent
from epitomic.support.files import read_json

RESULTS = Path(__file__).parents[1] / "results" / "own-images"
WEIGHTS = "epitomic_resnet-tiny_imagenet"
SETS = {
    "easy": "five classes of Caltech-101",
    "few": "twenty classes of Caltech-101",
    "photos": "1,000 images of Imagenette",
}
NETWORKS = {  # name -> network, weights that it starts from, and the run from random weights that it is compared with
    "epitomic": ("`epitomic_resnet`", "trained", "epitomic-random"),
    "epitomic-random": ("`epitomic_resnet`", "random", None),
    "strided": ("`strided_resnet`", "trained", "strided-random"),
    "strided-random": ("`strided_resnet`", "random", None),
}
KINDS = {"butterfly": ("monarch",)}  # class -> classes of the weights that are of this kind, but share no word
SAMPLES = 1000  # of the bootstrap
Runs = list[dict[str, Any]]


def own_images() -> str:
    """The table of errors, the classes that the weights know, and how it was measured; a sentence without runs."""
    found = {(name, network): _runs(name, network) for name in SETS for network in NETWORKS}
    first = next((runs[0] for runs in found.values() if runs), None)
    if first is None:
        return "Not measured yet.\n"
    rows = [_row(found, name, network) for (name, network), runs in found.items() if runs]
    head = (
        *("images", "network", "weights", "seeds", "test images", "error", "95 % interval"),
        *("errors, of those from random", "pixels", "epochs", "longest run"),
    )
    shared = [f"- {SETS[name]}: {_shared(runs[0])}" for name in SETS if (runs := _any(found, name))]
    machine = first["machine"]
    threads = counted(machine["threads"], "thread")
    lines = (
        *(
            markdown_table(head, rows),
            "Classes that the weights were trained on, too (by id, by a word of the name, or by kind):",
            "",
        ),
        *(*shared, ""),
        f"Measured at commit {first['commit'][:7]} on {machine['processor']} with {threads}.",
    )
    return "\n".join(lines) + "\n"


def _runs(name: str, network: str) -> Runs:
    """Reads the finished runs of a network on a set, by seed."""
    paths = (RESULTS / name).glob(f"{network}-*/run.json")
    seeds = {path.parent.name.removeprefix(f"{network}-"): path for path in paths}
    return [read_json(seeds[seed]) for seed in sorted(seeds, key=lambda text: (len(text), text)) if seed.isdecimal()]


def _any(found: dict[tuple[str, str], Runs], name: str) -> Runs:
    return next((runs for (which, _), runs in found.items() if which == name and runs), [])


def _row(found: dict[tuple[str, str], Runs], name: str, network: str) -> tuple[str, ...]:
    """One line: the mean error over the seeds with the interval of the test images, and the share of errors left."""
    runs, (model, weights, other) = found[name, network], NETWORKS[network]
    images = runs[0]["test"]["images"]
    errors = [run["test"]["errors"] for run in runs]
    mean = statistics.mean(errors)
    low, high = wilson(round(mean), images)
    spread = f" ± {100 * statistics.stdev(errors) / images:.2f}" if len(errors) > 1 else ""
    random = found.get((name, other), []) if other else []
    return (
        *(SETS[name], model, weights, str(len(runs)), f"{images:,}"),
        f"{100 * mean / images:.2f}{spread} %",
        f"{100 * low:.2f} to {percent(high)}",
        _share(runs, random) if random else "",
        _span(run["recipe"]["photographs"]["crop"] for run in runs),
        _span(run["recipe"]["epochs"] for run in runs),
        f"{max(run['seconds'] for run in runs):.0f} s",
    )


def _span(values: Iterator[int]) -> str:
    low, *_, high = sorted([*values] * 2)
    return f"{low}" if low == high else f"{low} to {high}"


def _wrong(runs: Runs) -> Tensor:
    """Which test images each run gets wrong, (runs, images)."""
    return torch.tensor([[rank != "1" for rank in run["test"]["ranks"]] for run in runs]).float()


def _share(runs: Runs, random: Runs) -> str:
    """The share of errors that trained weights leave, with its 95 % interval by a bootstrap over images and seeds."""
    ours, theirs = _wrong(runs), _wrong(random)
    draw = torch.Generator().manual_seed(0)
    found = []
    for _ in range(SAMPLES):
        images = torch.randint(ours.shape[1], (ours.shape[1],), generator=draw)
        left, right = (
            wrong[torch.randint(len(wrong), (len(wrong),), generator=draw)][:, images].mean()
            for wrong in (ours, theirs)
        )
        found.append(float(left / right.clamp(min=1e-9)))
    low, high = sorted(found)[int(0.025 * SAMPLES)], sorted(found)[int(0.975 * SAMPLES)]
    return f"{float(ours.mean() / theirs.mean().clamp(min=1e-9)):.2f} ({low:.2f} to {high:.2f})"


def _shared(run: dict[str, Any]) -> str:
    """Names the classes of a set that the weights were trained on, too."""
    known = read_json(find_pretrained(WEIGHTS) / CONFIG)["classes"]
    classes = [*run["test"]["classes"]]
    if all(re.fullmatch(r"n\d{8}", name) for name in classes):
        return ", ".join(readable(name for name in classes if name in known)) or "none"
    alike = {name: [other for other in readable(known) if _are_alike(name, other)] for name in classes}
    return ", ".join(f"{name} ({', '.join(others)})" for name, others in alike.items() if others) or "none"


def _are_alike(name: str, other: str) -> bool:
    return bool(_words(name) & _words(other)) or other in KINDS.get(name, ())


def _words(name: str) -> set[str]:
    return {word.removesuffix("s") for word in re.split(r"[\s_]+", name.lower())}


FIGURES = {"own-images": own_images}
