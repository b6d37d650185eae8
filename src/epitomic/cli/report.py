"""Writes a web page about one run, or about several to compare them. The page is one file that needs nothing else.

epitomic report runs/mnist                          writes runs/mnist/report.html
epitomic report runs/epitomic runs/maxpool --out compare.html
epitomic report runs/mnist --learning-curve         first trains on a quarter and on a half of the images
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from epitomic.cli.output import output_stem
from epitomic.cli.shared_options import RUN_HELP, add_data_dir
from epitomic.support.console import Progress

if TYPE_CHECKING:
    from epitomic.training.run_folder import RunFolder


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help=f"{RUN_HELP}; a run need not be finished")
    parser.add_argument(
        "--out", metavar="FILE", help="file to write (default: RUN/report.html, or report.html for several runs)"
    )
    parser.add_argument("--images", type=int, default=1000, metavar="N", help="largest number of test images to use")
    parser.add_argument("--no-robustness", action="store_true", help="do not measure shifted images, which is faster")
    parser.add_argument(
        "--learning-curve",
        action="store_true",
        help="first train on a quarter and on a half of the images, in as many steps each: takes twice the training",
    )
    add_data_dir(parser)


def run(args: argparse.Namespace) -> int:
    """Writes the page, and says where it is and what it could not show."""
    from epitomic.training.run_folder import REPORT
    from epitomic.visualisation import open_runs
    from epitomic.visualisation.report import write_report

    runs = open_runs(args.runs, args.data_dir)
    path = Path(args.out) if args.out else output_stem(args.runs, REPORT)
    if path.is_dir():
        path /= REPORT
    if args.learning_curve:
        for network in runs:
            status = _learning_curve(network)
            if status:
                return status
    with Progress(1) as bar:
        reports = write_report(runs, path, images=args.images, robustness=not args.no_robustness, tell=bar.update)
    for note in (note for found in reports for note in found.notes):
        print(note)
    print(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")
    return 0


def _learning_curve(network: RunFolder) -> int:
    """Trains on shares of the images, and returns 0; or, after Ctrl-C or SIGTERM, the exit status."""
    from epitomic.analysis.learning_curve import train_learning_curve
    from epitomic.training.signals import Stopped

    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    try:
        train_learning_curve(network, lambda text: print(text, flush=True))
    except Stopped as stopped:
        print(f"stopped; saved as {stopped}; the same command continues", file=sys.stderr)
        return 128 + stopped.number
    return 0
