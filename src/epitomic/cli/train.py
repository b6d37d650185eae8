"""Trains a network by a recipe.

    epitomic train digits --out runs/digits
    epitomic train cifar10 --out runs/c10 --model maxpool_small --epochs 5 --optimizer.lr 0.02
    epitomic train imagenette --data-dir data/imagenette --model maxpool --width 0.25 --crop 112
    epitomic train --resume --out runs/c10          goes on after an interruption
    epitomic train mnist --no-test --data.validation 10000 --model.conv_dropout 0.1 --out runs/trial

Everything is left in the folder: weights, metrics, results, checkpoints, and report.html, a page to look at.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from epitomic.data.open import default_workers
from epitomic.errors import UserError
from epitomic.options import add_options, overridden, whole
from epitomic.training.checkpoint import DamageWarning
from epitomic.training.recipe import Recipe
from epitomic.training.recipes import RECIPES, get_recipe
from epitomic.training.run import Run


def configure(parser: argparse.ArgumentParser) -> None:
    """The options: how to run, then every setting of a recipe."""
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="one of " + ", ".join(RECIPES))
    parser.add_argument("--out", metavar="DIR", help="the run folder; runs/RECIPE if not given")
    parser.add_argument("--resume", action="store_true", help="go on from the folder's last checkpoint")
    parser.add_argument("--data-dir", metavar="DIR", help="where the image sets are; else EPITOMIC_DATA or the cache")
    configure_devices(parser)
    parser.add_argument(
        "--threads", type=whole(1), metavar="N", help="of a process; results repeat to the bit for the same N"
    )
    parser.add_argument("--save-every", type=float, default=60.0, metavar="SECONDS", help="between checkpoints")
    parser.add_argument(
        "--no-test", action="store_true", help="do not look at the test images, and write no report: to try settings"
    )
    parser.add_argument("--no-report", action="store_true", help="do not write report.html at the end")
    parser.add_argument("--quiet", action="store_true", help="show nothing but errors")
    add_options(parser.add_argument_group("recipe", "settings; the defaults are the recipe's"), Recipe)


def configure_devices(parser: argparse.ArgumentParser) -> None:
    """The options that say on what to run; None where they are not given."""
    parser.add_argument("--devices", type=whole(1), metavar="N", help="processes; 1, and under torchrun its own")
    parser.add_argument("--accelerator", choices=("cpu", "cuda", "mps", "auto"), help="kind of device; cpu")
    parser.add_argument("--workers", type=whole(0), metavar="N", help="processes that read photographs; half the cores")


def given_devices(args: argparse.Namespace) -> Iterator[str]:
    """Those that were given, as words of a command line."""
    for option in ("devices", "accelerator", "workers"):
        if getattr(args, option) is not None:
            yield from (f"--{option}", str(getattr(args, option)))


def run(args: argparse.Namespace) -> int:
    """Trains, evaluates, says where things are."""
    rank = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))
    if args.recipe is None and not (args.resume and args.out):
        raise UserError(f"which recipe? One of {', '.join(RECIPES)}; or --resume with --out DIR")
    if not args.save_every >= 0:
        raise UserError(f"--save-every must be at least 0 seconds, got {args.save_every:g}")
    folder = Run(args.out or f"runs/{args.recipe}")
    if rank == 0:
        recipe = _prepare(args, folder)
    else:  # the first process has checked, and may have begun to write already
        recipe = overridden(get_recipe(args.recipe) if args.recipe else folder.read_recipe(), args)
    return _train(args, recipe, folder, rank)


def _prepare(args: argparse.Namespace, folder: Run) -> Recipe:
    """The recipe to run; an error if the folder holds another, or one that is not to be resumed."""
    if args.resume and not folder.exists() and args.recipe is None:
        raise UserError(f"nothing to resume: {folder.recipe_path} is not there")
    stored = folder.read_recipe() if args.resume and folder.exists() else None
    recipe = overridden(get_recipe(args.recipe) if args.recipe else stored or folder.read_recipe(), args)
    if stored is not None:
        folder.check_same(recipe, str(folder.recipe_path), stored)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if not folder.results_path.is_file():  # a finished run needs none
                folder.checkpoints.load()
        for warning in caught:
            print(f"epitomic: {warning.message}", file=sys.stderr)
    else:
        folder.check_new()
    return recipe


def _train(args: argparse.Namespace, recipe: Recipe, folder: Run, rank: int) -> int:
    import torch

    from epitomic.training.loop import Stopped, train
    from epitomic.training.setup import Settings

    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", DamageWarning)  # `_prepare` has told the user
    if args.threads:
        torch.set_num_threads(args.threads)
    torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    settings = Settings(
        data_dir=args.data_dir,
        accelerator=args.accelerator or "cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]) if torchrun else args.devices or 1,
        nodes=int(os.environ["GROUP_WORLD_SIZE"]) if torchrun else 1,
        workers=default_workers() if args.workers is None else args.workers,
        save_every=args.save_every,
        test=not args.no_test,
        quiet=args.quiet,
    )
    try:
        results = train(recipe, folder, settings)
    except Stopped as stopped:
        if rank == 0:
            threads = ("--threads", str(args.threads)) if args.threads else ()  # with others the bits may differ
            settings_again = (*threads, *given_devices(args), *(("--no-test",) if args.no_test else ()))
            again = _command(args, "train", "--resume", "--out", str(folder.folder), *settings_again)
            print(f"stopped; saved as {stopped}\ngo on with: {again}", file=sys.stderr)
        return 128 + stopped.number
    except UserError as error:
        if rank == 0:
            raise
        # Before they are connected, all processes of a machine meet the same, and the first one tells.
        if torch.distributed.is_initialized() or os.environ.get("LOCAL_RANK") == "0":
            print(f"epitomic: process {rank}: {error}", file=sys.stderr)
        return 2
    if rank == 0 and not args.quiet:
        print(_summary(results, recipe))
        look = "look again with" if "test" in results else "look at the test images with"
        print(f"everything is in {folder.folder}; {look}: {_command(args, 'evaluate', str(folder.folder))}")
    if rank == 0 and "test" in results and not args.no_report:
        _report(args, folder)
    return 0


def _summary(results: dict[str, Any], recipe: Recipe) -> str:
    """What came of a training, in a line or two."""
    lines, last = [], []
    if "plain" in results:
        views = "mirrored and shifted" if recipe.data.views == "shifted" else recipe.data.views
        lines.append(f"plain: error {100 * results['plain']['error']:.2f} %; {views} views averaged:")
    if "center" in results:
        lines.append(
            f"10 crops: top-5 error {100 * (1 - results['test']['top5']):.2f} %; "
            f"centre crop: error {100 * results['center']['error']:.2f} %"
        )
    if "test" in results:
        test = results["test"]
        last.append(f"test error {100 * test['error']:.2f} % ({test['errors']} of {test['images']})")
    last.append(f"validation error {100 * results['validation_error']:.2f} % at epoch {results['best_epoch'] + 1}")
    last.append(f"{results['parameters']:,} parameters, {results['wall_seconds']:.0f} s")
    return "\n".join([*lines, ", ".join(last)])


def _report(args: argparse.Namespace, folder: Run) -> None:
    """Writes the page on the run; a page that cannot be written does not fail a training that is over."""
    try:
        from epitomic.visualisation.report import NAME, write_report
        from epitomic.visualisation.runs import open_run

        path = folder.folder / NAME
        write_report([open_run(folder.folder, args.data_dir)], path)
        if not args.quiet:
            print(f"the report is {path}: open it in a browser")
    except Exception as error:
        again = _command(args, "report", str(folder.folder))
        print(f"epitomic: no report was written ({error}); try: {again}", file=sys.stderr)


def _command(args: argparse.Namespace, *words: str) -> str:
    """A command on the same images, to paste into a shell."""
    data_dir = ("--data-dir", args.data_dir) if args.data_dir else ()
    return shlex.join(["epitomic", *words, *data_dir])
