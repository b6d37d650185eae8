"""Writes one self-contained page on a run, or on several to compare.

epitomic report runs/mnist                          writes runs/mnist/report.html
epitomic report runs/epitomic runs/maxpool --out compare.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

from epitomic.cli.output import output_stem, status_line


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, finished or not")
    parser.add_argument("--out", metavar="FILE", help="the page; RUN/report.html if not given, report.html for several")
    parser.add_argument("--images", type=int, default=1000, metavar="N", help="test images to look at, at most")
    parser.add_argument("--no-robustness", action="store_true", help="do not shift images: faster")
    parser.add_argument("--data-dir", metavar="DIR", help="where the image sets are; else EPITOMIC_DATA or the cache")


def run(args: argparse.Namespace) -> int:
    """Writes the page and says where it is and what it could not show."""
    from epitomic.visualisation import open_runs
    from epitomic.visualisation.report import NAME, write_report

    runs = open_runs(args.runs, args.data_dir)
    path = Path(args.out) if args.out else output_stem(args.runs, NAME)
    if path.is_dir():
        path /= NAME
    with status_line() as tell:
        reports = write_report(runs, path, images=args.images, robustness=not args.no_robustness, progress=tell)
    for report in reports:
        for note in report.notes:
            print(note)
    print(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")
    return 0
