"""Draws the first layer's epitomes, several runs side by side at one scale; one epitome's filters; deeper layers.

epitomic filters runs/mnist
epitomic filters runs/epitomic runs/maxpool --out first_layers
epitomic filters runs/mnist --epitome 3             the D x D filters inside one epitome
epitomic filters runs/cifar10 --layer 2             the patches that excite the units of layer 2 most
"""

from __future__ import annotations

import argparse

from epitomic.cli.output import output_stem
from epitomic.errors import UserError


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders")
    parser.add_argument("--out", metavar="STEM", help="writes STEM.png and STEM.svg; RUN/filters if not given")
    parser.add_argument("--contrast", choices=("each", "shared"), default="each", help="of each epitome, or of all")
    parser.add_argument("--grey", action="store_true", help="the mean of the colour channels")
    parser.add_argument(
        "--sharp", action="store_true", help="each weight a square, instead of blended with its neighbours"
    )
    parser.add_argument("--epitome", type=int, metavar="N", help="the single filters of this one, from 0")
    parser.add_argument("--layer", metavar="L", help="a deeper layer, by number from 1 or by name: its patches")
    parser.add_argument("--images", type=int, default=1000, help="test images to look for patches in")
    parser.add_argument("--data-dir", metavar="DIR", help="where the image sets are; else EPITOMIC_DATA or the cache")


def run(args: argparse.Namespace) -> int:
    """Draws and says where the files are."""
    from epitomic.visualisation import open_runs, save_figure
    from epitomic.visualisation.mosaics import epitome_figure, filters_figure, first_epitomes
    from epitomic.visualisation.patches import exciting_patches, patches_figure

    if args.epitome is not None and args.layer is not None:
        raise UserError("--epitome is of the first layer: give it or --layer, not both")
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
        found = exciting_patches(first, first.test.images[: args.images], args.layer)
        name = f"patches-{found.name}"
        figure = patches_figure(found, f"{found.name} of {first.model_name}, {first.dataset}")
    else:
        figure = filters_figure(runs, contrast=args.contrast, colour=not args.grey, smooth=not args.sharp)
        for view in runs:
            print(f"{view.folder}: {first_epitomes(view.model).text}")
    for file in save_figure(figure, args.out or output_stem(args.runs, name)):
        print(f"wrote {file}")
    return 0
