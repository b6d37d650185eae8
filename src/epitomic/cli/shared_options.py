"""Options that several commands have in common."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from epitomic.support.devices import ACCELERATORS
from epitomic.support.options import whole

RUN_HELP = "run folder, name of weights that ship with the package, or hf://user/name on the hub"


def add_data_dir(parser: argparse._ActionsContainer) -> None:
    """Adds ``--data-dir``."""
    parser.add_argument(
        "--data-dir", metavar="DIR", help="folder of the image sets (default: $EPITOMIC_DATA, or else the user's cache)"
    )


def add_workers(parser: argparse._ActionsContainer) -> None:
    """Adds ``--workers``, which is None unless it is given."""
    parser.add_argument(
        "--workers",
        type=whole(0),
        metavar="N",
        help="processes that read photographs, for each process that computes (default: half the cores, from 1 to 8)",
    )


def add_device(parser: argparse._ActionsContainer) -> None:
    """Adds ``--device`` for one device."""
    parser.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="device to compute on, such as cpu, cuda:1 or mps; auto is a CUDA or ROCm GPU if there is one, else the "
        "CPU (default: auto)",
    )


def add_devices(parser: argparse._ActionsContainer) -> None:
    """Adds the options that say where to train; each is None unless it is given."""
    parser.add_argument(
        "--devices", type=whole(1), metavar="N", help="number of processes (default: 1; torchrun sets it)"
    )
    parser.add_argument(
        "--accelerator",
        choices=ACCELERATORS,
        help="kind of device to train on; auto is a CUDA or ROCm GPU if there is one, else the CPU (default: auto)",
    )
    add_workers(parser)


def given_devices(args: argparse.Namespace) -> Iterator[str]:
    """Yields the options of `add_devices` that were given, as words of a command line."""
    for option in ("devices", "accelerator", "workers"):
        if getattr(args, option) is not None:
            yield from (f"--{option}", str(getattr(args, option)))
