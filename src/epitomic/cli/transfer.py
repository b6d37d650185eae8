"""Classifies other images by a trained network's features: the paper's Caltech-101 experiment.

    epitomic transfer runs/imagenet caltech101 --splits 10
    epitomic transfer runs/*-0 caltech101 --features network untrained --out results/caltech101
    epitomic transfer runs/maxpool-0 caltech101 --features pixels --out results/caltech101

Each image gives one vector from the last fully-connected layer, scaled to unit length. A support vector machine, one
against one and with libsvm's default C, is trained on 30 images of each class and tested on all others.

RUN/transfer.json keeps the figures, with one entry for each kind of features, kernel and set of images. With --out,
OUT/RUN.json keeps a copy, and OUT/table.md shows all copies that are there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from epitomic.cli.feature_options import KINDS_HELP, add_feature_options, compute_features
from epitomic.cli.output import output_folder
from epitomic.cli.shared_options import RUN_HELP
from epitomic.support.console import Progress, tell_part
from epitomic.support.errors import UserError, unknown
from epitomic.support.files import read_sealed, write_sealed, write_text
from epitomic.support.machine import gather_facts
from epitomic.support.options import whole

SEVERAL = {"all": ("linear", "rbf-libsvm", "rbf"), "both": ("linear", "rbf")}  # "both" as in older commands


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help=RUN_HELP)
    add_feature_options(parser)
    parser.add_argument(
        "--features", nargs="+", default=["network"], metavar="KIND", help=f"{KINDS_HELP} (default: network)"
    )
    parser.add_argument(
        "--kernel",
        default="all",
        metavar="KIND",
        help="kernel of the classifier: linear, rbf-libsvm (gamma is 1/features, libsvm's default), rbf (gamma is "
        "scikit-learn's scale), both (linear and rbf) or all (default: all)",
    )
    parser.add_argument(
        "--train-per-class", type=whole(1), default=30, metavar="N", help="images of each class to train on"
    )
    parser.add_argument("--splits", type=whole(1), default=5, metavar="N", help="number of random splits")
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="also write DIR/RUN.json and DIR/table.md (default: neither)",
    )


def run(args: argparse.Namespace) -> int:
    """Trains and tests the classifiers; prints and writes the figures."""
    from epitomic.analysis.features import check_kind
    from epitomic.analysis.transfer import KERNELS
    from epitomic.reproduction.transfer_table import transfer_table
    from epitomic.training.run_folder import TRANSFER
    from epitomic.training.run_schema import check_transfer

    if args.kernel not in (*KERNELS, *SEVERAL):
        raise unknown("--kernel", args.kernel, (*KERNELS, *SEVERAL))
    for kind in args.features:
        check_kind(kind)
    names = [_name(folder) for folder in args.runs]
    if args.out and len(set(names)) < len(names):
        raise UserError(
            f"--out keeps one file for each name of a run folder; two runs share a name: {', '.join(names)}"
        )
    facts = gather_facts()
    for folder in args.runs:
        path = output_folder(folder) / TRANSFER
        results = check_transfer(read_sealed(path), path) if path.is_file() else {}
        for kind in args.features:
            for entry in _measure(folder, kind, args):
                key = f"{entry['data']} {kind} {entry['kernel']} {args.train_per_class}"
                results[key] = {**entry, "facts": facts}
            write_sealed(path, results)
        if args.out:
            kept = Path(args.out) / f"{_name(folder)}.json"
            write_sealed(kept, {key: entry for key, entry in results.items() if entry["data"] == _data(args)})
            write_text(kept.parent / "table.md", transfer_table(kept.parent))
    return 0


def _name(folder: str) -> str:
    return Path(folder).resolve().name


def _data(args: argparse.Namespace) -> str:
    return Path(args.data).resolve().name + (f"/{args.split}" if args.split else "")


def _measure(folder: str, kind: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures one entry for each kernel, and prints it."""
    from epitomic.analysis.transfer import KERNELS, measure_transfer

    kernels = SEVERAL.get(args.kernel, (args.kernel,))
    options = {"per_class": args.train_per_class, "splits": args.splits, "seed": args.seed}
    with Progress(1) as bar:
        parts = [tell_part(bar.update, number, 1 + len(kernels)) for number in range(1 + len(kernels))]
        features = compute_features(folder, kind, args, parts[0])
        figures = [
            measure_transfer(features, kernel=kernel, tell=tell, **options)
            for kernel, tell in zip(kernels, parts[1:], strict=True)
        ]
    count, size = features.vectors.shape
    classes = f"{len(features.classes)} classes, {args.train_per_class} of each to train on"
    print(f"{_data(args)}: {count:,} images of {classes}; features of {folder}: {kind}, {size:,} numbers")
    for figure in figures:
        spread = "" if figure["standard_deviation"] is None else f" +- {100 * figure['standard_deviation']:.2f}"
        accuracy = f"mean per-class accuracy {100 * figure['mean']:.2f}{spread} % over {args.splits} splits"
        print(f"{KERNELS[figure['kernel']]}: {accuracy}", flush=True)
    return [{"data": _data(args), "features": kind, **figure} for figure in figures]
