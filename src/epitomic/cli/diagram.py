"""Draws the pictures that explain what an epitome is, with real weights and a handwritten digit.

epitomic diagram --out idea                         max-pooling beside epitomic convolution
epitomic diagram shift --out shift                  one patch before and after the digit moves by a pixel
epitomic diagram topographic --run RUN --out map    a large epitome of a network that you have trained
"""

from __future__ import annotations

import argparse

from epitomic.cli.output import write_figure
from epitomic.support.errors import UserError

KINDS = ("idea", "filters", "match", "positions", "shift", "topographic")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("kind", nargs="?", choices=KINDS, default="idea", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--out", metavar="STEM", help="write STEM.png and STEM.svg (default: KIND)")
    parser.add_argument(
        "--run", metavar="RUN", help="run for KIND topographic, with such a first layer (default: none)"
    )


def run(args: argparse.Namespace) -> int:
    """Draws one picture and prints the names of its files."""
    from epitomic.visualisation.diagram import DIAGRAMS, topographic_figure

    if args.run and args.kind != "topographic":
        raise UserError(f"--run is for KIND topographic alone, got KIND {args.kind}")
    if args.kind == "topographic" and not args.run:
        raise UserError("KIND topographic needs --run RUN, a run whose first layer is topographic")
    figure = topographic_figure(args.run) if args.run else DIAGRAMS[args.kind]()
    write_figure(figure, args.out or args.kind)
    return 0
