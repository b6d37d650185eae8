"""Tests a trained network on its test images, and writes the figures to evaluation.json in its folder.

    epitomic evaluate runs/digits
    epitomic evaluate runs/imagenette --data-dir data/imagenette --crops 10

For photographs, the test images are those in the folder `val`. Class probabilities are averaged over views and crops.
"""

from __future__ import annotations

import argparse

from epitomic.cli.shared_options import RUN_HELP, add_data_dir, add_workers
from epitomic.data.photographs.open import PHOTOGRAPHS
from epitomic.data.small.sets import NAMES
from epitomic.data.small.views import VIEWS
from epitomic.evaluation import FIVE, uneven_error
from epitomic.support.console import percent, text_table
from epitomic.support.errors import UserError, unknown


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--data", metavar="NAME", help="image set to test on (default: the one it was trained on)")
    add_data_dir(parser)
    parser.add_argument("--device", default="cpu", metavar="NAME", help="device to compute on, such as cuda")
    parser.add_argument(
        "--views",
        metavar="NAME",
        help=f"views of each image of a small set: {', '.join(VIEWS)} (default: as trained)",
    )
    parser.add_argument("--crops", type=int, choices=(1, 10), help="crops of each photograph (default: 10)")
    add_workers(parser)


def run(args: argparse.Namespace) -> int:
    """Tests the network and prints the figures."""
    from epitomic.training.experiment import evaluate
    from epitomic.training.run_folder import open_run

    network = open_run(args.run, args.data_dir)
    if args.data not in (None, *NAMES, *PHOTOGRAPHS):
        raise unknown("--data", args.data, (*NAMES, *PHOTOGRAPHS))
    name = args.data or network.dataset
    own = args.data is None and (network.config or {}).get("own")
    for option, sets in (("views", NAMES), ("crops", PHOTOGRAPHS)):
        fits = ("photographs" in (network.config or {})) == (option == "crops") if own else name in sets
        if getattr(args, option) is not None and not fits:
            raise UserError(f"--{option} is for {', '.join(sets)}, not for {name}")
    found = evaluate(network, args.device, name=args.data, views=args.views, crops=args.crops, workers=args.workers)
    print(f"{name}, {found['images']} test images: error {percent(found['error'])} ({found['errors']} wrong)")
    top5 = f"top-5 {percent(found['top5'])}   " if len(found["classes"]) > FIVE else ""
    print(f"top-1 {percent(found['top1'])}   {top5}loss {found['loss']:.4f}")
    mean = uneven_error(found)
    if mean is not None:
        print(f"mean error over classes {percent(mean)}")
    rows = [
        [
            label,
            str(row["images"]),
            *("-" if row[key] is None else percent(row[key]) for key in ("recall", "precision")),
        ]
        for label, row in found["classes"].items()
    ]
    print(text_table(["class", "images", "recall", "precision"], rows, right=(1, 2, 3)))
    return 0
