"""Makes one of the published tables: every network, every seed, then the table with means and spreads.

    epitomic reproduce                       the tables, and what is finished of each
    epitomic reproduce digits --jobs 2       minutes, on data that ships with scikit-learn
    epitomic reproduce mnist --jobs 2        continues where it was stopped
    epitomic reproduce mnist --show          the table of what is finished so far

A finished run leaves its recipe, facts, metrics and results in OUT/MODEL-SEED and is never run again; the weights stay
in RUNS/MODEL-SEED. OUT/table.md is written again after each run.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from epitomic.cli.train import configure_devices, given_devices
from epitomic.errors import UserError
from epitomic.files import write_text
from epitomic.options import PREFIX, add_options, overridden, whole
from epitomic.reproduction.render import render
from epitomic.reproduction.results import Finished, finished, is_finished, keep
from epitomic.reproduction.tables import TABLES, Planned, Table, get_table, plan
from epitomic.training.recipe import Recipe
from epitomic.training.recipes import get_recipe


def configure(parser: argparse.ArgumentParser) -> None:
    """The options: which table, how to run it, and the recipe's own."""
    parser.add_argument("table", nargs="?", metavar="TABLE", help="one of " + ", ".join(TABLES))
    parser.add_argument("--out", metavar="DIR", help="what is kept of finished runs; results/TABLE if not given")
    parser.add_argument("--runs", metavar="DIR", help="the run folders, with weights; runs/TABLE if not given")
    parser.add_argument("--jobs", type=whole(1), default=1, metavar="N", help="trainings at a time")
    parser.add_argument("--threads", type=whole(1), metavar="N", help="of a training; the cores divided among the jobs")
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="only these networks of the table")
    parser.add_argument("--seeds", type=whole(1), metavar="N", help="of each network; else the table's own numbers")
    parser.add_argument("--show", action="store_true", help="run nothing, show the table of what is finished")
    parser.add_argument("--data-dir", metavar="DIR", help="where the image sets are; else EPITOMIC_DATA or the cache")
    configure_devices(parser)
    add_options(parser.add_argument_group("recipe", "settings; a table of your own, so name an --out"), Recipe)


def run(args: argparse.Namespace) -> int:
    """Runs what is not finished, keeps what is, shows the table."""
    if args.table is None:
        return _list_tables()
    for option, plural in (("model.name", "--models"), ("seed", "--seeds")):
        if PREFIX + option in args:
            raise UserError(f"--{option.partition('.')[0]} is the table's to choose: see {plural}")
    table = get_table(args.table)
    published = get_recipe(table.recipe)
    recipe = overridden(published, args)
    if recipe != published and not args.out:
        raise UserError("other settings than the table's make another table: name a folder for it with --out")
    kept, runs = (Path(given or f"{kind}/{args.table}") for given, kind in ((args.out, "results"), (args.runs, "runs")))
    planned = list(plan(table, args.models, args.seeds))
    done = {run.planned for run in finished(table, kept, recipe)}
    missing = [one for one in planned if one not in done]
    failed = {} if args.show else _run_missing(args, table, recipe, missing, planned, kept, runs)
    if not args.show:
        print()
    shown = [run for run in finished(table, kept, recipe) if run.planned.model in (args.models or table.seeds)]
    print(render(args.table, table, shown), end="")
    for name, reason in failed.items():
        print(f"\n{name} failed: {reason}\nits log is {runs / name}.log")
    return 1 if failed else 0


def _run_missing(
    args: argparse.Namespace,
    table: Table,
    recipe: Recipe,
    missing: list[Planned],
    planned: list[Planned],
    kept: Path,
    runs: Path,
) -> dict[str, str]:
    """Trains what is missing; the runs that failed, with the reason."""
    from epitomic.reproduction.runner import Interrupted, run_all

    threads = args.threads or max(1, (os.cpu_count() or 1) // args.jobs)
    settings = [
        word
        for name, text in vars(args).items()
        if name.startswith(PREFIX)
        for word in (f"--{name.removeprefix(PREFIX)}", text)
    ]
    settings += given_devices(args)
    if args.data_dir:
        settings += ["--data-dir", args.data_dir]

    def command(one: Planned) -> list[str]:
        chosen = ["--model", one.model, "--seed", str(one.seed), "--threads", str(threads)]
        return ["train", table.recipe, *settings, *chosen, "--resume", "--no-report", "--out", str(runs / one.name)]

    def tell(text: str) -> None:
        print(text, flush=True)

    failed: dict[str, str] = {}
    tell(f"{table.title}: {len(planned)} runs, {len(planned) - len(missing)} of them finished")
    try:
        for one, problem in run_all(missing, command, lambda one: runs / f"{one.name}.log", jobs=args.jobs, tell=tell):
            if problem is not None:
                failed[one.name] = problem
                tell(f"{one.name}: {problem}")
                continue
            keep(runs / one.name, kept / one.name)
            write_text(kept / "table.md", render(args.table, table, finished(table, kept, recipe)))
            figures = Finished.read(one, kept / one.name)
            done = sum(is_finished(kept / other.name) for other in planned)
            tell(
                f"{one.name}: test error {100 * figures.error():.2f} %, {figures.results['wall_seconds']:.0f} s; "
                f"{done} of {len(planned)} runs are finished"
            )
    except Interrupted as stopped:
        print(f"stopped; every run has saved a checkpoint: the same command goes on ({kept} keeps what is finished)")
        raise SystemExit(128 + stopped.number) from None
    return failed


def _list_tables() -> int:
    width = max(map(len, TABLES)) + 2
    for name, table in TABLES.items():
        planned = list(plan(table))
        done = sum(is_finished(Path("results") / name / one.name) for one in planned)
        runs = f"{len(planned)} run{'s' if len(planned) > 1 else ''}"
        print(f"{name:<{width}}{table.title}: {runs}, {done} finished in results/{name}")
    return 0
