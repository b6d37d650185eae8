"""Claim: mean + contrast normalisation (Eq. 3) adds at most 10 % to a training step of a layer.

Both layers run in turn. The figure is the median of the ratios, with its quartiles.

    python benchmarks/normalization.py
"""

from __future__ import annotations

import argparse

from epitomic.bench.cases import CASES, Contestant, enter
from epitomic.bench.timing import interleaved

LAYERS = ("3x3, pool 2", "paper layer 2", "paper layer 6")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="auto", help="algorithm of the layer (default: auto)")
    parser.add_argument("--rounds", type=int, default=10, help="timings of each layer (default: 10)")
    args = parser.parse_args()
    for name in LAYERS:
        entries = {n: enter(CASES[name], Contestant(args.algorithm, "channels_last", n)) for n in (False, True)}
        functions = {("forward", normalize): entry.inference for normalize, entry in entries.items()}
        functions |= {("training", normalize): entry.training for normalize, entry in entries.items()}
        times = interleaved(functions, args.rounds)
        for mode in ("forward", "training"):
            print(f"{name:<16}{mode:<10}{times[mode, True] / times[mode, False]} of the time without normalisation")


if __name__ == "__main__":
    main()
