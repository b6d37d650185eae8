"""Error against the shift of the test images, 0 to 6 pixels in each direction, and how often the prediction changes.

    epitomic robustness runs/epitomic-* runs/maxpool-* runs/maxout-* --out results/robustness-mnist

writes a CSV with a row per run, shift and direction, the table of means, and a figure. Again with --add, it measures
the runs that are not in the CSV yet, so that a table grows as runs end.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from epitomic.cli.output import output_stem, status_line
from epitomic.files import write_text

if TYPE_CHECKING:
    from epitomic.visualisation.robustness import ShiftRow


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders; seeds of one network are averaged")
    parser.add_argument(
        "--out", metavar="STEM", help="writes STEM.csv, .md, .png and .svg; RUN/robustness if not given"
    )
    parser.add_argument("--shifts", type=int, default=6, metavar="PIXELS", help="the largest shift")
    parser.add_argument("--images", type=int, metavar="N", help="the first N test images only")
    parser.add_argument(
        "--add",
        action="store_true",
        help="to what STEM.csv has: its runs are not measured again; runs of one network in one folder are its seeds",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="where the image sets are; else EPITOMIC_DATA or the cache")


def run(args: argparse.Namespace) -> int:
    """Measures, keeping each run's rows as it ends; prints the table, writes the files."""
    from epitomic.visualisation import open_runs, save_figure
    from epitomic.visualisation.robustness import (
        by_network,
        check_alike,
        grouped,
        measure_shifts,
        read_rows,
        robustness_figure,
        robustness_table,
        save_rows,
    )

    stem = Path(args.out) if args.out else output_stem(args.runs, "robustness")
    path = Path(f"{stem}.csv")
    rows = read_rows(path) if args.add and path.is_file() else []
    known = {row.run for row in rows}
    runs = open_runs([run for run in args.runs if str(Path(run)) not in known], args.data_dir)
    check_alike(rows, runs, most=args.shifts, images=args.images, path=path)
    measured = []
    with status_line() as tell:
        for view in runs:
            measured.append(measure_shifts(view, most=args.shifts, images=args.images, progress=tell))
            if args.add and path.is_file():
                rows = read_rows(path)  # another command may have added to the table meanwhile
            rows += measured[-1]
            save_rows(rows, path)
    groups = by_network(rows) if args.add else grouped(runs, measured)
    table = robustness_table(groups)
    print(table)
    write_text(Path(f"{stem}.md"), f"{_head(args, groups, stem)}\n\n```\n{table}\n```\n")
    for file in [path, f"{stem}.md", *save_figure(robustness_figure(groups), stem)]:
        print(f"wrote {file}")
    return 0


def _head(args: argparse.Namespace, groups: dict[str, list[ShiftRow]], stem: Path) -> str:
    """The command that makes the whole table, and where it was made."""
    from epitomic.reproduction.render import made, short_commit
    from epitomic.training.run import gather_facts

    rows = [row for group in groups.values() for row in group]
    words = ["epitomic", "robustness", *dict.fromkeys(row.run for row in rows), "--shifts", str(args.shifts)]
    words += ["--images", str(args.images)] if args.images else []
    facts = gather_facts()
    return (
        f"`{shlex.join([*words, '--out', stem.as_posix()])}`: means over directions and seeds, the least and the "
        f"largest seed in brackets; {rows[0].images} test images; {'last added to at ' if args.add else ''}"
        f"commit {short_commit(facts) or 'unknown'}, {made([facts])}."
    )
