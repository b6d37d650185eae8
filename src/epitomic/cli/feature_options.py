"""Options that `epitomic features` and `epitomic transfer` share, and the features that they ask for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from epitomic.cli.output import output_folder
from epitomic.cli.shared_options import add_workers
from epitomic.support.console import Tell

if TYPE_CHECKING:
    from epitomic.analysis.features import Features

KINDS_HELP = "network: as trained; untrained: the same network before its training; pixels: the images themselves"


def add_feature_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say which images to compute features of, and how."""
    parser.add_argument("data", metavar="DATA", help="class folders, or a store that `epitomic prepare` made")
    parser.add_argument(
        "--split", metavar="NAME", help="split of DATA, such as val (default: train, or all if DATA has no splits)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the untrained network and of random splits")
    parser.add_argument("--device", default="cpu", metavar="NAME", help="device to compute on, such as cuda")
    parser.add_argument("--cache", metavar="DIR", help="folder that keeps computed vectors (default: RUN/features)")
    add_workers(parser)


def compute_features(run: str, kind: str, args: argparse.Namespace, tell: Tell) -> Features:
    """Computes the features that the options ask for."""
    from epitomic.analysis import features
    from epitomic.training.run_folder import FEATURES, open_run

    cache = Path(args.cache) if args.cache else output_folder(run) / FEATURES
    options = {name: getattr(args, name) for name in ("split", "seed", "device", "workers")}
    return features.compute_features(open_run(run), Path(args.data), cache, kind=kind, tell=tell, **options)
