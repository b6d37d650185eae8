"""Classifies other images by a trained network's features: the paper's Caltech-101 experiment.

    epitomic transfer runs/imagenet caltech101 --kernel both --splits 10
    epitomic transfer runs/imagenet caltech101 --features untrained

One vector an image from the last fully-connected layer, scaled to unit length; a support vector machine, one against
one, with libsvm's default C; trained on 30 images a class and tested on all others. The figures are also written to
RUN/transfer.json, one entry for each kind of features, kernel and set of images.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from epitomic.cli.features import compute_features, configure_features
from epitomic.errors import UserError, unknown
from epitomic.files import read_json, write_json


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    configure_features(parser)
    parser.add_argument("--kernel", default="linear", metavar="KIND", help="linear, rbf or both")
    parser.add_argument("--train-per-class", type=int, default=30, metavar="N", help="images to train on")
    parser.add_argument("--splits", type=int, default=5, metavar="N", help="random splits to repeat it on")


def run(args: argparse.Namespace) -> int:
    """Trains and tests the machines; prints and writes the figures."""
    from epitomic.transfer import KERNELS, transfer

    if args.kernel not in (*KERNELS, "both"):
        raise unknown("--kernel", args.kernel, (*KERNELS, "both"))
    for option in ("train_per_class", "splits"):
        if getattr(args, option) < 1:
            raise UserError(f"--{option.replace('_', '-')} must be at least 1, got {getattr(args, option)}")
    features = compute_features(args)
    path = Path(args.run) / "transfer.json"
    results = read_json(path) if path.is_file() else {}
    name = Path(args.data).resolve().name + (f"/{args.split}" if args.split else "")
    count, size = features.vectors.shape
    per_class = args.train_per_class
    print(
        f"{name}: {count:,} images of {len(features.classes)} classes, {per_class} of each to train on; "
        f"features: {args.features}, {size:,} numbers"
    )
    for kernel in KERNELS if args.kernel == "both" else (args.kernel,):
        accuracies = transfer(features, kernel=kernel, per_class=per_class, splits=args.splits, seed=args.seed)
        mean = statistics.mean(accuracies)
        spread = statistics.stdev(accuracies) if len(accuracies) > 1 else None
        shown = f" +- {100 * spread:.2f}" if spread is not None else ""
        print(f"{kernel:<8}mean per-class accuracy {100 * mean:.2f}{shown} % over {len(accuracies)} splits")
        results[f"{name} {args.features} {kernel} {per_class}"] = {
            "data": name,
            "features": args.features,
            "kernel": kernel,
            "train_per_class": per_class,
            "seed": args.seed,
            "images": count,
            "classes": len(features.classes),
            "mean": mean,
            "standard_deviation": spread,
            "accuracies": accuracies,
        }
    write_json(path, results)
    return 0
