"""Draws the epitomes or filters of the first layer, of several runs side by side at one scale.

epitomic filters runs/mnist
epitomic filters runs/epitomic runs/maxpool --out first_layers
epitomic filters runs/mnist --epitome 3             the D x D filters inside one epitome
epitomic filters runs/cifar10 --layer 2             the patches that excite the units of layer 2 most
"""

from __future__ import annotations

import argparse

from epitomic.cli.output import output_stem, write_figure
from epitomic.cli.shared_options import RUN_HELP, add_data_dir
from epitomic.support.console import Progress
from epitomic.support.errors import UserError


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--out", metavar="STEM", help="write STEM.png and STEM.svg (default: RUN/filters)")
    parser.add_argument(
        "--contrast", choices=("each", "shared"), default="each", help="stretch each epitome by itself, or all alike"
    )
    parser.add_argument("--grey", action="store_true", help="draw the mean of the colour channels")
    parser.add_argument("--sharp", action="store_true", help="draw each weight as a square, without blending")
    parser.add_argument(
        "--epitome", type=int, metavar="N", help="draw the filters of epitome N, from 0 (default: epitomes)"
    )
    parser.add_argument(
        "--layer",
        metavar="L",
        help="draw the patches that excite layer L most, a name or number from 1 (default: epitomes)",
    )
    parser.add_argument("--images", type=int, default=1000, metavar="N", help="test images to search for patches")
    add_data_dir(parser)


def run(args: argparse.Namespace) -> int:
    """Draws, and says where the files are."""
    from epitomic.analysis.first_layer import read_first_layer
    from epitomic.analysis.patches import exciting_patches
    from epitomic.visualisation import epitome_figure, filters_figure, open_runs, patches_figure

    if args.epitome is not None and args.layer is not None:
        raise UserError("--epitome is for the first layer: give --epitome or --layer, not both")
    runs = open_runs(args.runs, args.data_dir)
    single = args.epitome is not None or args.layer is not None
    if single and len(runs) > 1:
        raise UserError(f"{'--layer' if args.layer else '--epitome'} is for one RUN, got {len(runs)}")
    name, first = "filters", runs[0]
    if args.epitome is not None:
        name = f"epitome-{args.epitome}"
        figure = epitome_figure(first, args.epitome, colour=not args.grey)
    elif args.layer is not None:
        if args.images < 1:
            raise UserError(f"--images must be at least 1, got {args.images}")
        with Progress(1) as bar:
            bar.update(f"{first.name}: reading the test images")
            found = exciting_patches(first, first.test.images[: args.images], args.layer, tell=bar.update)
        name = f"patches-{found.name}"
        figure = patches_figure(found, f"{found.name} of {first.model_name}, {first.dataset}")
    else:
        figure = filters_figure(runs, contrast=args.contrast, colour=not args.grey, smooth=not args.sharp)
        for folder in runs:
            print(f"{folder.folder}: {read_first_layer(folder.model).text}")
    write_figure(figure, args.out or output_stem(args.runs, name))
    return 0
