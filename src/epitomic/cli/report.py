"""Writes a web page about one run, or about several to compare them. The page is one file that needs nothing else.

epitomic report runs/mnist                          writes runs/mnist/report.html
epitomic report runs/epitomic runs/maxpool --out compare.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

from epitomic.cli.output import output_stem
from epitomic.cli.shared_options import RUN_HELP, add_data_dir
from epitomic.support.console import Progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help=f"{RUN_HELP}; a run need not be finished")
    parser.add_argument(
        "--out", metavar="FILE", help="file to write (default: RUN/report.html, or report.html for several runs)"
    )
    parser.add_argument("--images", type=int, default=1000, metavar="N", help="largest number of test images to use")
    parser.add_argument("--no-robustness", action="store_true", help="do not measure shifted images, which is faster")
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
    with Progress(1) as bar:
        reports = write_report(runs, path, images=args.images, robustness=not args.no_robustness, tell=bar.update)
    for note in (note for found in reports for note in found.notes):
        print(note)
    print(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")
    return 0
