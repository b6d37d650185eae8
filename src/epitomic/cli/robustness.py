"""Measures the error on shifted test images, and how often the prediction changes.

    epitomic robustness runs/epitomic-* runs/maxpool-* runs/maxout-* --out results/robustness-mnist

Writes a CSV file with a row for each run, shift and direction, a table of means, and a picture. With --add, only runs
that the CSV file does not have are measured, so that a table can grow run by run.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from epitomic.cli.output import output_stem, write_figure
from epitomic.cli.shared_options import RUN_HELP, add_data_dir
from epitomic.support.console import Progress, tell_part
from epitomic.support.files import write_text
from epitomic.support.machine import describe_facts, gather_facts, short_commit

if TYPE_CHECKING:
    from epitomic.analysis.robustness_table import Groups


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help=f"{RUN_HELP}; seeds of one network are averaged")
    parser.add_argument(
        "--out", metavar="STEM", help="write STEM.csv, STEM.md, STEM.png and STEM.svg (default: RUN/robustness)"
    )
    parser.add_argument("--shifts", type=int, default=6, metavar="PIXELS", help="largest shift (default: 6)")
    parser.add_argument(
        "--images", type=int, metavar="N", help="use N test images (default: all of a small set, 1,000 photographs)"
    )
    parser.add_argument(
        "--add",
        action="store_true",
        help="add to STEM.csv without measuring its runs again; runs of one network in one folder count as its seeds",
    )
    add_data_dir(parser)


def run(args: argparse.Namespace) -> int:
    """Measures, and saves the rows of each run when it is done; prints the table, writes the files."""
    from epitomic.analysis.robustness import measure_shifts
    from epitomic.analysis.robustness_table import (
        check_alike,
        group_rows,
        group_runs,
        read_rows,
        robustness_table,
        save_rows,
    )
    from epitomic.visualisation import open_runs, robustness_figure

    stem = Path(args.out) if args.out else output_stem(args.runs, "robustness")
    path = Path(f"{stem}.csv")
    rows = read_rows(path) if args.add and path.is_file() else []
    known = {row.run for row in rows}
    runs = open_runs([run for run in args.runs if str(Path(run)) not in known], args.data_dir)
    check_alike(rows, runs, maximum=args.shifts, images=args.images, path=path)
    measured = []
    with Progress(1) as bar:
        for number, folder in enumerate(runs):
            tell = tell_part(bar.update, number, len(runs))
            measured.append(measure_shifts(folder, maximum=args.shifts, images=args.images, tell=tell))
            if args.add and path.is_file():
                rows = read_rows(path)  # another command may have added rows meanwhile
            rows += measured[-1]
            save_rows(rows, path)
    groups = group_rows(rows) if args.add else group_runs(runs, measured)
    table = robustness_table(groups)
    print(table)
    write_text(Path(f"{stem}.md"), f"{_head(args, groups, stem)}\n\n```\n{table}\n```\n")
    print(f"wrote {path}\nwrote {stem}.md")
    write_figure(robustness_figure(groups), stem)
    return 0


def _head(args: argparse.Namespace, groups: Groups, stem: Path) -> str:
    """The command that makes the whole table, and where it was made."""
    from epitomic.analysis.robustness_table import brackets

    rows = [row for group in groups.values() for row in group]
    words = ["epitomic", "robustness", *dict.fromkeys(row.run for row in rows), "--shifts", str(args.shifts)]
    words += ["--images", str(args.images)] if args.images else []
    facts = gather_facts()
    return (
        f"`{shlex.join([*words, '--out', stem.as_posix()])}`: means over directions and seeds, with "
        f"{brackets(groups)}; {rows[0].images} test images; {'last added to at ' if args.add else ''}"
        f"commit {short_commit(facts) or 'unknown'}, {describe_facts([facts])}."
    )
