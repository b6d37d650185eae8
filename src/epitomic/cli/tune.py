"""Times the algorithms of each layer of a network on this machine, and remembers the fastest.

    epitomic tune epitomic                       a network, by its name
    epitomic tune runs/c10                       the network and the batch size of a run
    epitomic tune runs/c10 --inference           forward passes only

All algorithms that can serve a layer are timed, on the input that the layer gets in a training step. The timings
go to a file in the user's cache. `epitomic train --benchmark` and programs with epitomic.benchmark = True take the
fastest algorithm from there. Timings that the file has already are shown, not made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import nn

from epitomic.bench.tuning import Tuned, tunable, tune
from epitomic.cli.shared_options import RUN_HELP, add_device
from epitomic.models import create_model, list_models
from epitomic.ops.choice import ALGORITHMS
from epitomic.ops.tuning_file import tuning_path
from epitomic.support.console import Progress, text_table
from epitomic.support.devices import allow_tf32, describe_device, open_device
from epitomic.support.errors import UserError
from epitomic.support.options import whole
from epitomic.training.run_folder import open_run

PRECISIONS = ("32-true", "tf32", "bf16-mixed")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("network", metavar="RUN|MODEL", help=f"name of a network, or a {RUN_HELP}")
    parser.add_argument(
        "--batch-size",
        type=whole(1),
        metavar="N",
        help="images in a batch (default: the run's, for one process; 128 for a MODEL)",
    )
    parser.add_argument(
        "--image-size", type=whole(1), metavar="PIXELS", help="height and width, for a MODEL (default: its own)"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="precision of the arithmetic (default: the run's; 32-true for a MODEL)"
    )
    parser.add_argument("--inference", action="store_true", help="time forward passes without gradients")
    parser.add_argument(
        "--threads", type=whole(1), default=torch.get_num_threads(), metavar="N", help="threads of torch"
    )
    add_device(parser)


def run(args: argparse.Namespace) -> int:
    """Times all layers and prints a line for each."""
    torch.set_num_threads(args.threads)
    device = open_device(args.device)
    model, batch_size, precision = _open(args)
    allow_tf32(device, precision)
    layers = tunable(model)
    if not layers:
        raise UserError(f"{args.network} has no layer that chooses its algorithm")
    size, channels = (int(model.config[key]) for key in ("image_size", "in_channels"))  # type: ignore[index]
    images = torch.randn(batch_size, channels, size, size, generator=torch.Generator().manual_seed(0))
    images = images.to(device, memory_format=torch.channels_last)  # as in training
    with Progress(len(layers)) as progress:
        found = tune(
            model.to(device), images, progress, training=not args.inference, bfloat16=precision == "bf16-mixed"
        )
    what = "forward passes" if args.inference else "training steps"
    print(f"{what} of {batch_size} images of {channels} x {size} x {size}, {precision}")
    print(f"on {describe_device(device, args.device)}\n")
    print(_table(found))
    print(f"\nkept in {tuning_path()}")
    return 0


def _open(args: argparse.Namespace) -> tuple[nn.Module, int, str]:
    """Returns the network, the batch size and the precision."""
    if args.network in list_models():
        model = create_model(args.network, image_size=args.image_size)
        return model, args.batch_size or 128, args.precision or "32-true"
    if args.image_size:
        raise UserError("--image-size goes with the name of a network; a run has images of its own size")
    run = open_run(args.network)
    recipe, model = run.recipe, run.model
    batch_size = args.batch_size or int(recipe.get("batch_size", 128)) // int(recipe.get("accumulate", 1))
    precision = args.precision or str(recipe.get("precision", "32-true"))
    if precision not in PRECISIONS:
        raise UserError(
            f"{args.network} has --precision {precision}, which tune does not time: add --precision 32-true"
        )
    return model, batch_size, precision


def _table(found: Sequence[Tuned]) -> str:
    """One line for each layer: what the rule takes, what is fastest, and the milliseconds of each algorithm."""
    names = [name for name in ALGORITHMS if any(name in t.decision.milliseconds for t in found)]
    rows = []
    for t in found:
        times = [t.decision.milliseconds.get(name, float("inf")) for name in names]
        shown = ["-" if time == float("inf") else f"{time:.2f}" for time in times]
        gain = "-" if t.gain is None else f"{t.gain:.2f}x"
        rows.append((t.name, t.decision.rule, t.decision.algorithm, gain, *shown))
    head = ("layer", "rule", "fastest", "gain", *(f"{name} ms" for name in names))
    return text_table(head, rows, right=range(3, len(head)))
