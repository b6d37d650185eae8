"""Trains a network by a recipe.

    epitomic train pictures/                        class folders of your own: the run is in runs/pictures
    epitomic train digits --out runs/digits
    epitomic train cifar10 --out runs/c10 --model maxpool_small --epochs 5 --optimizer.lr 0.02
    epitomic train imagenette --data-dir data/imagenette --model maxpool --width 0.25 --crop 112
    epitomic train --resume --out runs/c10          continues after an interruption
    epitomic train mnist --no-test --data.validation 10000 --model.conv-dropout 0.1 --out runs/trial

The run folder then holds the weights, the metrics of each epoch, the test results, and a report to open in a browser.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from epitomic.cli.shared_options import add_data_dir, add_devices, given_devices
from epitomic.data.own.images import Place, absolute, is_own, open_own, own_name
from epitomic.data.photographs.loading import default_workers
from epitomic.support.console import Progress
from epitomic.support.errors import UserError
from epitomic.support.options import add_options, given_options, overridden, whole
from epitomic.training.checkpoint import DamageWarning
from epitomic.training.recipe import Recipe
from epitomic.training.recipes import RECIPES, get_recipe
from epitomic.training.run_folder import RECIPE, REPORT, RunFolder, open_run
from epitomic.training.setup import Settings, check_model

if TYPE_CHECKING:
    from epitomic.training.budget import Fitted

MINUTES = 10.0  # for a training on own images, by default
ALL_SEEN = 1000  # test images that the report looks at, if no time is given
FIRST = ("model.name", "start.weights", "epochs")  # settings that people change first


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options: the six that people use first, how to run, then every setting of a recipe."""
    parser.add_argument(
        "recipe",
        nargs="?",
        metavar="RECIPE",
        help="a folder of your own images (class folders, train/ with val/ or test/, a store), a CSV or Parquet "
        "file, or the name of a recipe: " + ", ".join(RECIPES),
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder that the run is written to (default: runs/ and the recipe or folder)"
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in the folder from its last checkpoint")
    parser.add_argument(
        "--freeze", action="store_true", help="with --from: train the last layer alone (default: all layers)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="own images: time from start to exit, test and report included; chooses size and epochs to fit "
        f"(default: {MINUTES:g}, unless --epochs is given)",
    )
    add_data_dir(parser)
    how = parser.add_argument_group("how to run")
    add_devices(how)
    how.add_argument(
        "--threads",
        type=whole(1),
        metavar="N",
        help="threads of a process; runs with the same N repeat to the bit (default: torch's own choice)",
    )
    how.add_argument(
        "--sync-batch-norm",
        choices=("auto", "on", "off"),
        default="auto",
        help="normalise batches over all processes; auto is on with CUDA and ROCm, which alone can do it",
    )
    how.add_argument(
        "--benchmark",
        action="store_true",
        help="time the algorithms of each layer at its first call and take the fastest (default: a rule decides)",
    )
    how.add_argument(
        "--wait",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="longest wait for another process of the training; then the command ends",
    )
    how.add_argument("--save-every", type=float, default=60.0, metavar="SECONDS", help="time between two checkpoints")
    how.add_argument(
        "--no-test", action="store_true", help="do not use the test images and write no report, to try out settings"
    )
    how.add_argument("--no-report", action="store_true", help=f"do not write {REPORT} at the end")
    how.add_argument("--quiet", action="store_true", help="show nothing but errors")
    add_options(parser, Recipe, "all other settings of the recipe", "The recipe holds their defaults.", first=FIRST)


def run(args: argparse.Namespace) -> int:
    """Trains and tests a network, and says where the files are."""
    if args.recipe is None and not (args.resume and args.out):
        raise UserError(f"which recipe? Name one of {', '.join(RECIPES)}, or continue a run with --resume --out DIR")
    if not 0 < args.wait <= 1e6:
        raise UserError(f"--wait must be above 0 and at most a million seconds, got {args.wait:g}")
    if not args.save_every >= 0:
        raise UserError(f"--save-every must be at least 0 seconds, got {args.save_every:g}")
    rank = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))
    own = args.recipe is not None and args.recipe not in RECIPES and is_own(args.recipe)
    folder = RunFolder(args.out or f"runs/{own_name(args.recipe) if own else args.recipe}", args.data_dir)
    begun = args.resume and folder.exists()
    if args.minutes is not None and (begun or not own):
        raise UserError("--minutes is for a new run on images of your own, such as `epitomic train pictures/`")
    if rank == 0 and own and not begun:
        folder.check_new()  # before it reads the images
    fitted: Fitted | None = None
    if own and not begun:
        recipe, fitted = _own_recipe(args, quiet=args.quiet or rank != 0)
    else:
        recipe = _recipe(args, folder, own)
    if rank != 0:  # the first process checks and locks the folder; it may have begun to write
        return _train(args, recipe, folder, rank, fitted)
    if not begun:
        folder.check_new()
    with folder.writing() as lock:
        if lock.problem:
            hint = f"{folder.folder} cannot be locked ({lock.problem})"
            print(f"epitomic: {hint}: see that no other training uses it", file=sys.stderr)
        _check_folder(args, recipe, folder)
        return _train(args, recipe, folder, rank, fitted)


def _recipe(args: argparse.Namespace, folder: RunFolder, own: bool) -> Recipe:
    """Returns the recipe that is named, or else the one in the folder, with the settings that are given."""
    if args.recipe is None and not folder.exists():
        raise UserError(f"nothing to resume: {folder.folder / RECIPE} is not there")
    named = args.recipe is not None and not own
    return overridden(get_recipe(args.recipe) if named else folder.read_recipe(), args)


def _own_recipe(args: argparse.Namespace, *, quiet: bool) -> tuple[Recipe, Fitted | None]:
    """Returns the recipe that fits the user's own images, with the settings that are given, and what fits the time."""
    from epitomic.training.budget import check_minutes, fit_budget
    from epitomic.training.own import describe, own_recipe

    given = given_options(args)
    timed = "epochs" not in given and "steps" not in given
    if args.minutes is not None and not timed:
        raise UserError("--minutes chooses the epochs: give --minutes or --epochs, not both")
    minutes = check_minutes(MINUTES if args.minutes is None else args.minutes)
    settings = _settings(args)
    if timed and settings.devices * settings.nodes > 1:
        raise UserError("--minutes works with one process: give --epochs instead, or leave out --devices")
    if args.threads:
        torch.set_num_threads(args.threads)
    place = Place(absolute(args.recipe), given.get("data.image_column"), given.get("data.label_column"))
    images = open_own(place, settings.workers, quiet=quiet)
    recipe = overridden(own_recipe(images, place, given), args)
    if args.freeze:
        if recipe.start.weights is None:
            raise UserError("--freeze trains the last layer alone, which needs trained weights: add --from")
        recipe = replace(recipe, start=replace(recipe.start, freeze=True))
    check_model(recipe)
    fitted = None
    tell = str if quiet else _tell
    for note in images.notes:
        tell(note)
    if timed:
        tell(f"measuring this machine, to train for {minutes:g} minutes")
        fixed = "photographs.crop" in given or "photographs.size" in given
        fitted = fit_budget(recipe, images, settings, minutes, fixed_size=fixed, say=tell)
        recipe = fitted.recipe
    tell(describe(recipe, images))
    if fitted is not None and fitted.is_short:
        tell("the time is short for so many images: more --minutes, or an idle machine, would give a better network")
    return recipe, fitted


def _tell(text: str) -> None:
    """Prints a line at once, even into a pipe."""
    print(text, flush=True)


def _check_folder(args: argparse.Namespace, recipe: Recipe, folder: RunFolder) -> None:
    """Raises an error if the folder holds another run, or one that must not be resumed."""
    if not (args.resume and folder.exists()):
        folder.check_new()
        return
    folder.check_same(recipe, folder.folder / RECIPE, folder.read_recipe())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if not folder.finished:  # a finished run needs no checkpoint
            folder.checkpoints.load()
    for warning in caught:
        print(f"epitomic: {warning.message}", file=sys.stderr)


def _train(args: argparse.Namespace, recipe: Recipe, folder: RunFolder, rank: int, fitted: Fitted | None) -> int:
    from epitomic.training.experiment import summarize, train
    from epitomic.training.parallel import LostProcessError, lost_processes_named
    from epitomic.training.signals import Stopped

    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", DamageWarning)  # `_check_folder` has told the user
    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        with lost_processes_named(settings := _settings(args)):
            results = train(recipe, folder, settings, fitted.feed if fitted else None)
    except Stopped as stopped:
        if rank == 0:
            print(f"stopped; saved as {stopped}\ncontinue with: {_resume_command(args, folder)}", file=sys.stderr)
        return 128 + stopped.number
    except UserError as error:
        if isinstance(error, LostProcessError):
            launcher = "torchrun [its options] -m " if "TORCHELASTIC_RUN_ID" in os.environ else ""
            error = UserError(f"{error}; continue with: {launcher}{_resume_command(args, folder)}")
        if rank == 0:
            raise error from None
        # Before the processes are connected, all of a machine meet the same error, and the first one tells it.
        if torch.distributed.is_initialized() or os.environ.get("LOCAL_RANK") == "0":
            print(f"epitomic: process {rank}: {error}", file=sys.stderr)
        return 2
    if rank == 0 and not args.quiet:
        print(summarize(results, recipe.data.views))
        test = "test again with" if "test" in results else "look at the test images with"
        print(f"everything is in {folder.folder}; {test}: {_command(args, 'evaluate', str(folder.folder))}")
    if rank == 0 and "test" in results and not args.no_report:
        _report(args, folder, fitted.seen if fitted else ALL_SEEN)
    return 0


def _settings(args: argparse.Namespace) -> Settings:
    torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    return Settings(
        data_dir=args.data_dir,
        accelerator=args.accelerator or "auto",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]) if torchrun else args.devices or 1,
        nodes=int(os.environ["GROUP_WORLD_SIZE"]) if torchrun else 1,
        workers=default_workers() if args.workers is None else args.workers,
        wait=args.wait,
        save_every=args.save_every,
        sync_batch_norm=args.sync_batch_norm,
        benchmark=args.benchmark,
        test=not args.no_test,
        quiet=args.quiet,
    )


def _report(args: argparse.Namespace, folder: RunFolder, images: int) -> None:
    """Writes the report. If that fails, the training has still succeeded."""
    try:
        from epitomic.visualisation.report import write_report

        path = folder.folder / REPORT
        with Progress(1, quiet=args.quiet) as progress:
            progress.say("writing the report")
            write_report([open_run(folder.folder, args.data_dir)], path, images=images, tell=progress.update)
        if not args.quiet:
            print(f"the report is {path}: open it in a browser")
    except Exception as error:
        again = _command(args, "report", str(folder.folder))
        print(f"epitomic: no report was written ({error}); try: {again}", file=sys.stderr)


def _resume_command(args: argparse.Namespace, folder: RunFolder) -> str:
    threads = ("--threads", str(args.threads)) if args.threads else ()  # another number may change the last bits
    flags = [f"--{name}" for name in ("benchmark", "no-test") if getattr(args, name.replace("-", "_"))]
    if args.sync_batch_norm != "auto":
        flags += ["--sync-batch-norm", args.sync_batch_norm]
    return _command(args, "train", "--resume", "--out", str(folder.folder), *threads, *given_devices(args), *flags)


def _command(args: argparse.Namespace, *words: str) -> str:
    """Returns a command on the same images, to paste into a shell."""
    data_dir = ("--data-dir", args.data_dir) if args.data_dir else ()
    return shlex.join(["epitomic", *words, *data_dir])
