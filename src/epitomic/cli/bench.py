"""Times the layer against conv2d + max_pool2d of the same filters, channels, window and output size.

Side by side in one run: each repetition times every contestant once, and ratios are taken within the repetition. The
pair runs in contiguous and in channels_last memory and the faster one counts; so do we.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from epitomic.bench import run as bench
from epitomic.bench.contest import CASES
from epitomic.bench.report import machine, save, table
from epitomic.errors import UserError, unknown
from epitomic.functional import ALGORITHMS
from epitomic.ops.library import why_not_native
from epitomic.options import whole


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--cases", nargs="+", metavar="NAME", default=list(CASES), help="layers to run")
    parser.add_argument("--algorithms", nargs="+", default=["auto"], metavar="A", help="of: " + ", ".join(ALGORITHMS))
    parser.add_argument("--normalize", action="store_true", help="time the normalised layers (Eq. 3) as well")
    parser.add_argument("--repetitions", type=whole(1), default=7, help="timings of each contestant")
    parser.add_argument("--threads", type=whole(1), default=torch.get_num_threads(), help="threads of torch")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument("--growth", action="store_true", help="also time over batch and image sizes")
    parser.add_argument(
        "--networks",
        nargs="*",
        metavar="NETWORK",
        help="time whole networks against their twins instead: these, or all if none is named",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write bench.csv and bench.png (needs matplotlib) here")


def run(args: argparse.Namespace) -> int:
    """Runs the benchmark and prints its table."""
    for name in args.cases:
        if name not in CASES:
            raise unknown("case", name, CASES)
    for name in args.algorithms:
        if name not in ALGORITHMS:
            raise unknown("algorithm", name, ALGORITHMS)
        reason = why_not_native(torch.float32, torch.device("cpu")) if name == "native" else None
        if reason:
            raise UserError(f"--algorithms native: {reason}")
    torch.set_num_threads(args.threads)
    progress, facts = bench.Progress(), machine()
    if args.networks is not None:
        return _run_networks(args, progress, facts)
    rows = []
    for name in args.cases:
        rows += bench.run(
            CASES[name],
            args.algorithms,
            repetitions=args.repetitions,
            normalize=args.normalize,
            memory=not args.no_memory,
            progress=progress,
        )
    grown = bench.growth(args.algorithms[0], repetitions=args.repetitions, progress=progress) if args.growth else []
    progress.done()
    print(table(rows))
    if grown:
        print("\ngrowth over batch and image size\n" + table(grown))
    if args.out:
        for file in save(rows + grown, args.out, facts):
            print(f"wrote {file}")
    return 0


def _run_networks(args: argparse.Namespace, progress: bench.Progress, facts: dict[str, str]) -> int:
    from epitomic.bench.networks import MATCHES, network_table, run_networks, save_networks

    known = {match.ours for match in MATCHES}
    for name in args.networks:
        if name not in known:
            raise unknown("network", name, known)
    matches = [match for match in MATCHES if not args.networks or match.ours in args.networks]
    results = run_networks(matches, repetitions=args.repetitions, progress=progress)
    progress.done()
    print(network_table(results))
    if args.out:
        print(f"wrote {save_networks(results, args.out, facts)}")
    return 0
