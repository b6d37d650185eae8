"""Shows what each epitomic layer matched on one image, and the image rebuilt from the first layer's matches.

    epitomic explain runs/mnist digit.png
    epitomic explain runs/cifar10 17                    the test image of this number
    epitomic explain runs/cifar10 --images 1000         the error of rebuilding so many test images

An image of another size or mode is converted: its middle square, resized, in grey or colour as the network takes it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from epitomic.cli.output import output_stem, status_line
from epitomic.errors import UserError
from epitomic.files import write_json
from epitomic.options import whole

if TYPE_CHECKING:
    from epitomic.visualisation import RunView


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("run", metavar="RUN", help="a run folder")
    parser.add_argument("image", nargs="?", metavar="IMAGE", help="an image file, or the number of a test image")
    parser.add_argument("--images", type=whole(1), metavar="N", help="rebuild the first N test images; no picture")
    parser.add_argument(
        "--out",
        metavar="STEM",
        help="writes STEM.png and STEM.svg, RUN/explain-IMAGE if not given; with --images, STEM.json",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="where the image sets are; else EPITOMIC_DATA or the cache")


def run(args: argparse.Namespace) -> int:
    """Draws, prints the classes and the reconstruction error."""
    from epitomic.visualisation import explain, explain_figure, open_run, save_figure

    if (args.image is None) == (args.images is None):
        raise UserError("explain takes one IMAGE, or --images N to rebuild many")
    view = open_run(args.run, args.data_dir)
    if args.images:
        return _rebuild_many(args, view)
    numbered = args.image.isdecimal() and not Path(args.image).exists()
    found = explain(view, int(args.image) if numbered else args.image)
    name = f"test image {args.image}" if numbered else Path(args.image).name
    for index in found.probabilities.topk(min(3, len(found.probabilities))).indices.tolist():
        print(f"{view.classes[index]}: {100 * found.probabilities[index]:.1f} %")
    if not found.matches:
        print(f"{view.model_name} has no epitomic layer: no matches to show, only the classes")
    for rebuilt in found.rebuilt:
        print(f"rebuilt from {_kind(rebuilt.matches)}: relative error {float(rebuilt.error[0]):.3f}")
    figure = explain_figure(view, found, title=f"{view.model_name} on {name}")
    stem = Path(args.image).stem if not numbered else args.image
    for file in save_figure(figure, args.out or output_stem([args.run], f"explain-{stem}")):
        print(f"wrote {file}")
    return 0


def _rebuild_many(args: argparse.Namespace, view: RunView) -> int:
    """Prints the errors over many test images; keeps them where ``--out`` says."""
    from epitomic.training.run import gather_facts
    from epitomic.visualisation import reconstruction_errors

    with status_line() as tell:
        errors = reconstruction_errors(view, args.images, tell)
    figures = {
        str(matches or "all"): {"mean": float(error.mean()), "standard_deviation": float(error.std(correction=0))}
        for matches, error in errors.items()
    }
    images = len(next(iter(errors.values())))
    for matches, error in zip(errors, figures.values(), strict=True):
        spread = f"{error['mean']:.3f} ± {error['standard_deviation']:.3f} over {images} test images"
        print(f"rebuilt from {_kind(matches)}: relative error {spread}")
    if args.out:
        path = Path(f"{args.out}.json")
        write_json(path, {"images": images, "errors": figures, "facts": gather_facts()})
        print(f"wrote {path}")
    return 0


def _kind(matches: int | None) -> str:
    if matches is None:
        return "all matches by response"
    return "the best match of each patch" if matches == 1 else f"the {matches} best matches per patch"
