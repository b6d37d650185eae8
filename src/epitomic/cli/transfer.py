"""Classifies other images by a trained network's features: the paper's Caltech-101 experiment.

    epitomic transfer runs/imagenet caltech101 --kernel both --splits 10
    epitomic transfer runs/*-0 caltech101 --features network untrained --out results/caltech101
    epitomic transfer runs/maxpool-0 caltech101 --features pixels --out results/caltech101

One vector an image from the last fully-connected layer, scaled to unit length; a support vector machine, one against
one, with libsvm's default C; trained on 30 images a class and tested on all others. The figures are also written to
RUN/transfer.json, one entry for each kind of features, kernel and set of images; with --out a copy goes to
OUT/RUN.json, and OUT/table.md shows all that are there.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from epitomic.cli.features import KINDS_HELP, check_kinds, compute_features, configure_features
from epitomic.cli.output import output_folder
from epitomic.errors import UserError, unknown
from epitomic.files import read_json, write_json, write_text
from epitomic.options import whole


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or names of weights that ship with it")
    configure_features(parser)
    parser.add_argument("--features", nargs="+", default=["network"], metavar="KIND", help=KINDS_HELP)
    parser.add_argument("--kernel", default="linear", metavar="KIND", help="linear, rbf or both")
    parser.add_argument("--train-per-class", type=whole(1), default=30, metavar="N", help="images to train on")
    parser.add_argument("--splits", type=whole(1), default=5, metavar="N", help="random splits to repeat it on")
    parser.add_argument("--out", metavar="DIR", help="also writes DIR/RUN.json, and DIR/table.md of all that are there")


def run(args: argparse.Namespace) -> int:
    """Trains and tests the machines; prints and writes the figures."""
    from epitomic.reproduction.transfers import render
    from epitomic.training.run import gather_facts
    from epitomic.transfer import KERNELS

    if args.kernel not in (*KERNELS, "both"):
        raise unknown("--kernel", args.kernel, (*KERNELS, "both"))
    check_kinds(args.features)
    names = [_name(folder) for folder in args.runs]
    if args.out and len(set(names)) < len(names):
        raise UserError(f"--out keeps a file for each name of a run folder, and two runs share one: {', '.join(names)}")
    facts = gather_facts()
    for folder in args.runs:
        path = output_folder(folder) / "transfer.json"
        results = read_json(path) if path.is_file() else {}
        for kind in args.features:
            results |= _measure(folder, kind, args, facts)
            write_json(path, results)
        if args.out:
            kept = Path(args.out) / f"{_name(folder)}.json"
            write_json(kept, {key: entry for key, entry in results.items() if entry["data"] == _data(args)})
            write_text(kept.parent / "table.md", render(kept.parent))
    return 0


def _name(folder: str) -> str:
    return Path(folder).resolve().name


def _data(args: argparse.Namespace) -> str:
    return Path(args.data).resolve().name + (f"/{args.split}" if args.split else "")


def _measure(folder: str, kind: str, args: argparse.Namespace, facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """One entry a kernel."""
    from epitomic.transfer import KERNELS, transfer

    features = compute_features(folder, kind, args)
    name = _data(args)
    count, size = features.vectors.shape
    per_class = args.train_per_class
    print(
        f"{name}: {count:,} images of {len(features.classes)} classes, {per_class} of each to train on; "
        f"features of {folder}: {kind}, {size:,} numbers"
    )
    entries = {}
    for kernel in KERNELS if args.kernel == "both" else (args.kernel,):
        accuracies = transfer(features, kernel=kernel, per_class=per_class, splits=args.splits, seed=args.seed)
        mean = statistics.mean(accuracies)
        spread = statistics.stdev(accuracies) if len(accuracies) > 1 else None
        shown = f" +- {100 * spread:.2f}" if spread is not None else ""
        print(f"{kernel:<8}mean per-class accuracy {100 * mean:.2f}{shown} % over {len(accuracies)} splits", flush=True)
        entries[f"{name} {kind} {kernel} {per_class}"] = {
            "data": name,
            "features": kind,
            "numbers": size,
            "kernel": kernel,
            "train_per_class": per_class,
            "seed": args.seed,
            "images": count,
            "classes": len(features.classes),
            "mean": mean,
            "standard_deviation": spread,
            "accuracies": accuracies,
            "facts": facts,
        }
    return entries
