"""Makes one of the published tables: trains every network with every seed, then writes means and spreads.

    epitomic reproduce                       lists the tables, and how many runs of each are finished
    epitomic reproduce digits --jobs 2       takes minutes, on images that come with scikit-learn
    epitomic reproduce mnist --jobs 2        continues where it was stopped
    epitomic reproduce mnist --show          shows the table of the runs that are finished so far

A finished run leaves its recipe, facts, metrics and results in OUT/MODEL-SEED and is never trained again. Its weights
stay in RUNS/MODEL-SEED. OUT/table.md is rewritten after each run. `mnist` and `cifar10` repeat the paper's Table 6.
`imagenette` and `tiny_imagenet` stand in for its Table 4.

`caltech101` and `caltech101_tiny` stand in for Table 5. They train nothing: they take the weights of imagenette and
tiny_imagenet from RUNS, and classify Caltech-101 by their features. The images are DATA_DIR/caltech101*, one folder for
each class.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch

from epitomic.cli.shared_options import add_data_dir, add_devices, given_devices
from epitomic.reproduction.accuracy_table import accuracy_table
from epitomic.reproduction.finished_runs import read_runs
from epitomic.reproduction.missing_runs import Interrupted, train_missing
from epitomic.reproduction.table_plans import TABLES, plan_runs
from epitomic.reproduction.transfer_plans import TRANSFERS, TransferPlan, find_images, plan_features
from epitomic.support.console import text_table
from epitomic.support.errors import UserError, unknown
from epitomic.support.options import add_options, flag, given_options, overridden, whole
from epitomic.training.recipe import Recipe
from epitomic.training.recipes import get_recipe
from epitomic.training.run_folder import RunFolder


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options: which table, how to make it, and the settings of its recipe."""
    parser.add_argument(
        "table", nargs="?", metavar="TABLE", help="name of the table: " + ", ".join((*TABLES, *TRANSFERS))
    )
    parser.add_argument("--out", metavar="DIR", help="folder of the table and finished runs (default: results/TABLE)")
    parser.add_argument(
        "--runs",
        metavar="DIR",
        help="folder of the run folders, with weights (default: runs/TABLE; for Caltech-101 runs/imagenette or "
        "runs/tiny_imagenet)",
    )
    parser.add_argument("--jobs", type=whole(1), default=1, metavar="N", help="number of trainings at a time")
    parser.add_argument(
        "--threads", type=whole(1), metavar="N", help="threads of a training (default: the cores divided by the jobs)"
    )
    parser.add_argument(
        "--models", nargs="+", metavar="MODEL", help="train and show these networks only (default: all of the table)"
    )
    parser.add_argument(
        "--seeds", type=whole(1), metavar="N", help="number of seeds of each network (default: as the table has it)"
    )
    parser.add_argument("--show", action="store_true", help="train nothing, only show the table of finished runs")
    add_data_dir(parser)
    add_devices(parser)
    add_options(
        parser, Recipe, "settings of the recipe", "If you change one of these, you make a table of your own: add --out."
    )


def run(args: argparse.Namespace) -> int:
    """Trains what is missing and shows the table; the exit status is 1 if a training failed."""
    if args.table is None:
        return _list_tables()
    for path, plural in (("model.name", "--models"), ("seed", "--seeds")):
        if path in given_options(args):
            raise UserError(f"{flag(path.partition('.')[0])} is set by the table: use {plural}")
    if args.table in TRANSFERS:
        return _transfer(TRANSFERS[args.table], args)
    if args.table not in TABLES:
        raise unknown("table", args.table, (*TABLES, *TRANSFERS))
    table = TABLES[args.table]
    recipe = overridden(get_recipe(table.name), args)
    if recipe != get_recipe(table.name) and not args.out:
        raise UserError(
            "these settings differ from the table's, so they make another table: add --out with a folder for it"
        )
    kept, runs = Path(args.out or f"results/{table.name}"), Path(args.runs or f"runs/{table.name}")
    planned = list(plan_runs(table, args.models, args.seeds))
    failed: dict[str, str] = {}
    if not args.show:
        threads = args.threads or max(1, (os.cpu_count() or 1) // args.jobs)
        try:
            failed = train_missing(
                table, recipe, planned, kept=kept, runs=runs, jobs=args.jobs, threads=threads, options=_options(args)
            )
        except Interrupted as stopped:
            print(
                f"stopped; every run has saved a checkpoint: repeat the command to continue ({kept} has finished runs)"
            )
            raise SystemExit(128 + stopped.number) from None
        print()
    finished = read_runs(table, kept, recipe)
    print(accuracy_table(table, [run for run in finished if run.planned.model in (args.models or table.seeds)]), end="")
    for name, reason in failed.items():
        print(f"\n{name} failed: {reason}\nits log is {runs / name}.log")
    return 1 if failed else 0


def _transfer(plan: TransferPlan, args: argparse.Namespace) -> int:
    """Measures the features that are missing and shows the table; the exit status is 1 if something failed."""
    from epitomic.reproduction.missing_transfers import measure_missing, missing_kernels
    from epitomic.reproduction.transfer_table import transfer_table

    if given_options(args) or args.jobs > 1 or args.devices or args.accelerator:
        raise UserError(f"{plan.name} trains nothing: it takes no settings of a recipe, no --jobs and no devices")
    kept, runs = Path(args.out or f"results/{plan.name}"), Path(args.runs or f"runs/{plan.source}")
    planned = list(plan_features(plan, args.models, args.seeds))
    failed: dict[str, str] = {}
    if not args.show:
        if args.threads:
            torch.set_num_threads(args.threads)
        missing = any(missing_kernels(plan, one, kept) for one in planned)
        images = find_images(plan, args.data_dir) if missing else None
        failed = measure_missing(plan, planned, images=images, kept=kept, runs=runs, workers=args.workers)
        print()
    print(transfer_table(kept), end="")
    return 1 if failed else 0


def _options(args: argparse.Namespace) -> list[str]:
    """Returns the options that are passed to each `epitomic train`."""
    words = [word for path, text in given_options(args).items() for word in (flag(path), text)]
    words += given_devices(args)
    return [*words, "--data-dir", args.data_dir] if args.data_dir else words


def _list_tables() -> int:
    from epitomic.reproduction.missing_transfers import missing_kernels

    rows = []
    for name, table in TABLES.items():
        planned = list(plan_runs(table))
        finished = sum(RunFolder(Path("results") / name / one.name).finished for one in planned)
        rows.append([name, table.title, str(len(planned)), str(finished)])
    for name, plan in TRANSFERS.items():
        features = list(plan_features(plan))
        done = sum(not missing_kernels(plan, one, Path("results") / name) for one in features)
        rows.append([name, plan.title, str(len(features)), str(done)])
    print(text_table(("table", "shows", "runs", "finished in results/"), rows, right=(2, 3)))
    return 0
