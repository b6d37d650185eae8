"""Draws what each epitomic layer matched in one image, and the image rebuilt from the first layer's matches.

    epitomic explain runs/mnist digit.png
    epitomic explain runs/cifar10 17                    the test image with this number
    epitomic explain runs/cifar10 --images 1000         the error of rebuilding this many test images

An image file may have any size and mode. Its middle square is resized, in grey or colour as the network takes it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from epitomic.cli.output import output_stem, write_figure
from epitomic.cli.shared_options import RUN_HELP, add_data_dir
from epitomic.support.console import Progress, percent
from epitomic.support.errors import UserError
from epitomic.support.files import write_json
from epitomic.support.machine import gather_facts
from epitomic.support.options import whole


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("image", nargs="?", metavar="IMAGE", help="image file, or number of a test image")
    parser.add_argument(
        "--images",
        type=whole(1),
        metavar="N",
        help="rebuild the first N test images, draw nothing (default: IMAGE alone)",
    )
    parser.add_argument(
        "--out",
        metavar="STEM",
        help="write STEM.png and STEM.svg (default: RUN/explain-IMAGE); with --images, write STEM.json",
    )
    add_data_dir(parser)


def run(args: argparse.Namespace) -> int:
    """Draws one image, or rebuilds many."""
    if (args.image is None) == (args.images is None):
        raise UserError("explain takes one IMAGE, or --images N to rebuild many")
    return _explain(args) if args.image is not None else _rebuild(args)


def _explain(args: argparse.Namespace) -> int:
    """Draws, and prints the likeliest classes and the reconstruction errors."""
    from epitomic.analysis.explanation import explain
    from epitomic.visualisation import explain_figure, open_run

    folder = open_run(args.run, args.data_dir)
    numbered = args.image.isdecimal() and not Path(args.image).exists()
    with Progress() as bar:
        bar.update(f"{folder.name}: looking at {args.image}")
        found = explain(folder, int(args.image) if numbered else args.image)
    for index in found.likely(3):
        mark = " (the true class)" if index == found.label else ""
        print(f"{folder.class_names[index]}: {percent(float(found.probabilities[index]), 1)}{mark}")
    if not found.matches:
        print(f"{folder.model_name} has no epitomic layer: no matches to show, only the classes")
    for rebuilt in found.rebuilt:
        print(f"rebuilt from {rebuilt.source}: relative error {float(rebuilt.error[0]):.3f}")
    name, stem = (
        (f"test image {args.image}", args.image) if numbered else (Path(args.image).name, Path(args.image).stem)
    )
    figure = explain_figure(folder, found, title=f"{folder.model_name} on {name}")
    write_figure(figure, args.out or output_stem([args.run], f"explain-{stem}"))
    return 0


def _rebuild(args: argparse.Namespace) -> int:
    """Prints the errors over many test images, and writes them where ``--out`` says."""
    from epitomic.analysis.reconstruction import matches_text, reconstruction_errors
    from epitomic.training.run_folder import open_run

    with Progress(1) as bar:
        errors = reconstruction_errors(open_run(args.run, args.data_dir), args.images, bar.update)
    figures = {
        matches: {"mean": float(error.mean()), "standard_deviation": float(error.std(correction=0))}
        for matches, error in errors.items()
    }
    images = len(errors[1])
    for matches, figure in figures.items():
        spread = f"{figure['mean']:.3f} ± {figure['standard_deviation']:.3f} over {images} test images"
        print(f"rebuilt from {matches_text(matches)}: relative error {spread}")
    if args.out:
        path = Path(f"{args.out}.json")
        named = {str(matches or "all"): figure for matches, figure in figures.items()}
        write_json(path, {"images": images, "errors": named, "facts": gather_facts()})
        print(f"wrote {path}")
    return 0
