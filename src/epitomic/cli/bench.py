"""Times the layer, and our fused pair, against conv2d + max_pool2d with the same filters, channels and output size.

    epitomic bench                                      the layers of the tables, with the fastest algorithm
    epitomic bench --algorithms native winograd         the native kernel, and torch calls only
    epitomic bench --networks epitomic_small            a training step of whole networks

All contestants run in one process. Each repetition times every contestant once, and ratios are taken within the
repetition. Both sides run in contiguous and in channels_last memory, and the faster time of each side counts. Torch's
two calls also run under torch.compile. On a processor with bfloat16 instructions everything runs in bfloat16, too;
speed-ups are always over torch's float32. "max_pool_conv2d" is the same function by our kernel. A network's name with
@torch is the network with torch's own layers.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Iterable
from pathlib import Path

import torch

from epitomic.bench.cases import CASES
from epitomic.bench.contest import growth_cases, run_contest
from epitomic.bench.networks import NETWORK_PAIRS, run_networks
from epitomic.bench.table import layer_table, network_table, save_layers, save_networks
from epitomic.ops.choice import ALGORITHMS
from epitomic.ops.library import why_not_native
from epitomic.support.console import Progress
from epitomic.support.errors import UserError, unknown
from epitomic.support.machine import timing_facts
from epitomic.support.options import whole


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--cases", nargs="+", metavar="NAME", help=f"layers to time: {'; '.join(CASES)} (default: all of them)"
    )
    parser.add_argument(
        "--algorithms", nargs="+", default=["auto"], metavar="A", help=f"how we compute them: {', '.join(ALGORITHMS)}"
    )
    parser.add_argument("--normalize", action="store_true", help="time the normalised layers (Eq. 3) as well")
    parser.add_argument("--repetitions", type=whole(1), default=7, metavar="N", help="timings of each contestant")
    parser.add_argument(
        "--threads", type=whole(1), default=torch.get_num_threads(), metavar="N", help="threads of torch"
    )
    parser.add_argument("--no-compile", action="store_true", help="run torch's two calls without torch.compile only")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument("--growth", action="store_true", help="time one layer over batch and image sizes as well")
    parser.add_argument(
        "--networks",
        nargs="*",
        metavar="NETWORK",
        help="time whole networks against their max-pooled versions; without names, all of them (default: time layers)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for bench.csv and bench.png (needs matplotlib), or for networks.csv (default: write nothing)",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the benchmark, prints its table and writes its files."""
    cases = args.cases or list(CASES)
    _check_names("case", cases, CASES)
    _check_names("algorithm", args.algorithms, ALGORITHMS)
    _check_names("network", args.networks or (), {pair.ours for pair in NETWORK_PAIRS})
    reason = why_not_native(torch.float32, torch.device("cpu")) if "native" in args.algorithms else None
    if reason:
        raise UserError(f"--algorithms native: {reason}")
    torch.set_num_threads(args.threads)
    return _run_layers(args, cases) if args.networks is None else _run_networks(args)


def _check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)


def _run_layers(args: argparse.Namespace, names: list[str]) -> int:
    facts, results, grown = timing_facts(), [], []
    growth = growth_cases() if args.growth else []
    with Progress(args.repetitions * (len(names) + len(growth))) as progress:
        for name in names:
            results += run_contest(
                CASES[name],
                args.algorithms,
                repetitions=args.repetitions,
                progress=progress,
                normalize=args.normalize,
                memory=not args.no_memory,
                compiled=not args.no_compile,
            )
        for case in growth:
            grown += run_contest(
                case,
                args.algorithms[:1],
                repetitions=args.repetitions,
                progress=progress,
                compiled=not args.no_compile,
            )
    print(layer_table(results))
    if grown:
        print("\ngrowth over batch and image size\n" + layer_table(grown))
    if args.out:
        save_layers(results + grown, args.out / "bench.csv", facts)
        print(f"wrote {args.out / 'bench.csv'}")
        if importlib.util.find_spec("matplotlib"):
            from epitomic.bench.picture import save_picture

            save_picture(results + grown, args.out / "bench.png")
            print(f"wrote {args.out / 'bench.png'}")
    return 0


def _run_networks(args: argparse.Namespace) -> int:
    facts = timing_facts()
    pairs = [pair for pair in NETWORK_PAIRS if not args.networks or pair.ours in args.networks]
    with Progress(args.repetitions * len(pairs)) as progress:
        results = run_networks(pairs, repetitions=args.repetitions, progress=progress)
    print(network_table(results))
    if args.out:
        save_networks(results, args.out / "networks.csv", facts)
        print(f"wrote {args.out / 'networks.csv'}")
    return 0
