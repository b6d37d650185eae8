"""Draws how runs converge. Runs that differ only in their seed become one line, their mean, with a band.

epitomic curves runs/epitomic-* runs/maxpool-*
epitomic curves runs/* --against seconds --out convergence
epitomic curves runs/imagenet* --metric val_top5_error      # Figure 3 of the paper
"""

from __future__ import annotations

import argparse
from pathlib import Path

from epitomic.cli.output import output_stem, write_figure
from epitomic.support.console import Progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder, finished or not")
    parser.add_argument("--out", metavar="STEM", help="write STEM.png and STEM.svg (default: RUN/curves)")
    parser.add_argument(
        "--metric", default="val_error", help="val_error, val_top5_error, train_error, val_loss or train_loss"
    )
    parser.add_argument("--against", default="epochs", help="epochs, seconds of training, or core-seconds")
    parser.add_argument("--scale", default="auto", help="auto, linear or log")
    parser.add_argument(
        "--every-run", action="store_true", help="draw a thin line for each run instead of means and bands"
    )


def run(args: argparse.Namespace) -> int:
    """Draws, prints the last value of each curve, and says where the files are."""
    from epitomic.analysis.convergence import curves
    from epitomic.visualisation import curves_figure, open_runs

    runs = open_runs([run for run in args.runs if not Path(run).is_file()] or args.runs)  # results/* has table.md too
    with Progress(1) as bar:
        found = curves(runs, metric=args.metric, against=args.against, tell=bar.update)
    figure = curves_figure(runs, metric=args.metric, against=args.against, scale=args.scale, every_run=args.every_run)
    for folder in runs:
        if not folder.metrics:
            print(f"{folder.folder}: left out, because no epoch is finished yet")
        elif not folder.finished:
            print(f"{folder.folder}: not finished, {len(folder.metrics)} epochs are shown")
    factor, unit = (100, " %") if args.metric.endswith("error") else (1, "")
    for curve in found:
        low, high = (factor * edge[-1] for edge in curve.band)
        spread = f" ({low:.2f} to {high:.2f})" if len(curve.values) > 1 else ""
        last = f"{factor * curve.mean[-1]:.2f}{unit}{spread} at {curve.x[-1]:.0f} {args.against}"
        rises = f", sum of all rises {factor * curve.rises:.2f}" if args.against == "epochs" else ""
        print(f"{curve.label}: {args.metric} {last}{rises}")
    write_figure(figure, args.out or output_stem(args.runs, "curves"))
    return 0
