"""Names the classes that a trained network finds in images.

    epitomic predict runs/pictures new/*.jpg
    epitomic predict runs/pictures new/ --top 1 --format csv > found.csv
    find . -name '*.png' | epitomic predict epitomic_fast-cifar10 - --format json

IMAGE is a file, a folder with all images below it, or - for standard input: the bytes of one image, or paths, one a
line. The network sees one view of each image. An image that cannot be read is named on standard error, and the others
follow. The exit status is 1 if there was such an image.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable

from epitomic.cli.shared_options import RUN_HELP
from epitomic.support.console import Progress, percent
from epitomic.support.errors import UserError
from epitomic.support.options import whole


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image file, folder, or - for standard input")
    parser.add_argument("--top", type=whole(1), default=5, metavar="N", help="number of classes to name")
    parser.add_argument("--format", choices=("text", "json", "csv"), default="text", help="how to write them")
    parser.add_argument(
        "--names",
        metavar="FILE",
        help="class names: one a line, or CLASS,NAME a line, or JSON (default: the network's)",
    )
    parser.add_argument("--device", default="cpu", metavar="NAME", help="device to compute on, such as cuda")


def run(args: argparse.Namespace) -> int:
    """Writes a line for each image and class, or a JSON object for each image."""
    from epitomic.analysis.prediction import Prediction, class_names, find_files, predict
    from epitomic.evaluation import on_device
    from epitomic.training.run_folder import open_run

    network = open_run(args.run)
    model = on_device(network.model, args.device)
    network.standardize  # noqa: B018  # raises an error before any image is read
    classes = class_names(network.classes, args.names)
    files = find_files(args.images, sys.stdin.buffer)
    writer = csv.writer(sys.stdout, lineterminator="\n")

    def text(found: Prediction) -> None:
        print(f"{found.file}  " + "  ".join(f"{name} {percent(share, 1)}" for name, share in found.top))

    def line(found: Prediction) -> None:
        print(json.dumps(found.to_json(), ensure_ascii=False))

    def rows(found: Prediction) -> None:
        writer.writerows((found.file, rank, name, share) for rank, (name, share) in enumerate(found.top, start=1))

    write: Callable[[Prediction], None] = {"text": text, "json": line, "csv": rows}[args.format]
    if args.format == "csv":
        writer.writerow(("file", "rank", "class", "probability"))
    bad = 0
    with Progress(len(files), unit="images", quiet=sys.stdout.isatty()) as progress:
        for number, found in enumerate(predict(model, files, classes, top=args.top), start=1):
            if found.problem is None:
                write(found)
            elif len(files) == 1:
                raise UserError(f"{found.file} cannot be read: {found.problem}")
            else:
                bad += 1
                print(f"epitomic: skipped {found.file}: {found.problem}", file=sys.stderr)
            progress.update(f"{number:,} of {len(files):,} images", number)
    if bad == len(files):
        raise UserError(f"none of the {len(files)} images can be read")
    return 1 if bad else 0
