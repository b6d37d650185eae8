"""Draws the convergence of any set of runs; runs that differ in their seed alone become a mean and a band.

epitomic curves runs/epitomic-* runs/maxpool-*
epitomic curves runs/* --against seconds --out convergence
"""

from __future__ import annotations

import argparse
from pathlib import Path

from epitomic.cli.output import output_stem


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, finished or not")
    parser.add_argument("--out", metavar="STEM", help="writes STEM.png and STEM.svg; RUN/curves if not given")
    parser.add_argument("--metric", default="val_error", help="val_error, train_error, val_loss or train_loss")
    parser.add_argument("--against", default="epochs", help="epochs, seconds of training, or core-seconds")
    parser.add_argument("--scale", default="auto", help="auto, linear or log")


def run(args: argparse.Namespace) -> int:
    """Draws and says where the files are."""
    from epitomic.visualisation import curves, curves_figure, open_runs, save_figure

    runs = open_runs([run for run in args.runs if not Path(run).is_file()] or args.runs)  # beside runs: table.md
    figure = curves_figure(runs, metric=args.metric, against=args.against, scale=args.scale)
    for view in runs:
        if not view.metrics:
            print(f"{view.folder}: no epoch is over yet, it is left out")
        elif not view.finished:
            print(f"{view.folder}: not finished, {len(view.metrics)} epochs are shown")
    for curve in curves(runs, metric=args.metric, against=args.against):
        factor, unit = (100, " %") if args.metric.endswith("error") else (1, "")
        low, high = (factor * edge[-1] for edge in curve.band)
        spread = f" ({low:.2f} to {high:.2f})" if len(curve.values) > 1 else ""
        last = f"{factor * curve.mean[-1]:.2f}{unit}{spread} at {curve.x[-1]:.0f} {args.against}"
        rises = f", all its rises together {factor * curve.rises:.2f}" if args.against == "epochs" else ""
        print(f"{curve.label}: {args.metric} {last}{rises}")
    for file in save_figure(figure, args.out or output_stem(args.runs, "curves")):
        print(f"wrote {file}")
    return 0
