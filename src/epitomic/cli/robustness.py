"""Error against the shift of the test images, 0 to 6 pixels in each direction, and how often the prediction changes.

    epitomic robustness runs/epitomic-* runs/maxpool-* runs/maxout-* --out results/robustness-mnist

writes a CSV with a row per run, shift and direction, the table of means, and a figure.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from epitomic.cli.output import output_stem, status_line
from epitomic.files import write_text


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders; seeds of one network are averaged")
    parser.add_argument(
        "--out", metavar="STEM", help="writes STEM.csv, .md, .png and .svg; RUN/robustness if not given"
    )
    parser.add_argument("--shifts", type=int, default=6, metavar="PIXELS", help="the largest shift")
    parser.add_argument("--images", type=int, metavar="N", help="the first N test images only")
    parser.add_argument("--data-dir", metavar="DIR", help="where the image sets are; else EPITOMIC_DATA or the cache")


def run(args: argparse.Namespace) -> int:
    """Measures, prints the table, writes the files."""
    from epitomic.visualisation import open_runs, save_figure
    from epitomic.visualisation.robustness import (
        grouped,
        measure_shifts,
        robustness_figure,
        robustness_table,
        save_rows,
    )

    runs = open_runs(args.runs, args.data_dir)
    with status_line() as tell:
        measured = [measure_shifts(view, most=args.shifts, images=args.images, progress=tell) for view in runs]
    groups = grouped(runs, measured)
    table = robustness_table(groups)
    print(table)
    stem = Path(args.out) if args.out else output_stem(args.runs, "robustness")
    save_rows((row for rows in measured for row in rows), Path(f"{stem}.csv"))
    command = shlex.join(["epitomic", *sys.argv[1:]])
    head = f"`{command}`: means over directions and seeds, the least and the largest seed in brackets."
    write_text(Path(f"{stem}.md"), f"{head}\n\n```\n{table}\n```\n")
    for file in [f"{stem}.csv", f"{stem}.md", *save_figure(robustness_figure(groups), stem)]:
        print(f"wrote {file}")
    return 0
