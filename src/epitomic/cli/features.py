"""Writes one feature vector for each image: the output of a trained network's last fully-connected layer.

    epitomic features runs/imagenet caltech101 --out caltech101.npz

DATA is a folder of class folders, or a store that `epitomic prepare` made. The file holds the arrays `vectors` (N, D)
and `labels` (N,), and the names of the `classes`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from epitomic.cli.feature_options import KINDS_HELP, add_feature_options, compute_features
from epitomic.cli.shared_options import RUN_HELP
from epitomic.support.console import Progress
from epitomic.support.errors import UserError

SUFFIXES = (".npz", ".safetensors")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    add_feature_options(parser)
    parser.add_argument("--features", default="network", metavar="KIND", help=KINDS_HELP)
    parser.add_argument("--out", metavar="FILE", required=True, help="new file that ends in .npz or .safetensors")


def run(args: argparse.Namespace) -> int:
    """Writes the features to a new file."""
    path = Path(args.out)
    if path.suffix not in SUFFIXES:
        raise UserError(f"--out must end in {' or '.join(SUFFIXES)}, got {args.out!r}")
    if path.exists():
        raise UserError(f"--out {path} exists already: remove it, or name another file")
    with Progress(1) as bar:
        features = compute_features(args.run, args.features, args, bar.update)
    features.save(path)
    count, size = features.vectors.shape
    print(f"wrote {path}: {count:,} vectors of {size:,} numbers")
    return 0
