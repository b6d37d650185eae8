"""Where patches that become pixels beat Winograd transforms: the measurements behind `ops.choice.has_few_channels`.

    python benchmarks/few_channels.py            first layers, whose input needs no gradient
    python benchmarks/few_channels.py --inner    inner layers

Prints how much faster a training step of the native kernel is by `pixels_to_channels`, without transforms, than with
them, and which way the rule takes, for several filters, windows, channels and epitomes. The rule is right if it takes
the faster way, or if the two are within 10 %.
"""

import argparse
from collections.abc import Callable
from unittest.mock import patch

from epitomic import functional
from epitomic.bench.cases import Case, Contestant, enter
from epitomic.bench.timing import interleaved
from epitomic.ops.choice import has_few_channels

FILTERS = ((2, 2), (3, 2), (5, 2), (7, 2), (3, 3), (6, 3))  # W, D
CHANNELS = (1, 2, 3, 4, 6, 8)
EPITOMES = (32, 128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inner", action="store_true", help="time inner layers")
    parser.add_argument("--repetitions", type=int, default=5, help="timings of each (default: 5)")
    args = parser.parse_args()
    wrong = total = 0
    print(" W  D    C    K  training  rule", flush=True)
    for kernel, pool in FILTERS:
        for channels in CHANNELS:
            for epitomes in EPITOMES:
                case = Case("", channels, epitomes, kernel, pool, pool, size=34, batch=32, first=not args.inner)
                run = enter(case, Contestant("native", "channels_last")).training
                functions = {few: forced(run, few) for few in (False, True)}
                times = interleaved(functions, args.repetitions)
                gain = (times[False] / times[True]).median
                taken = has_few_channels(epitomes, channels, (kernel, kernel), (pool, pool))
                total += 1
                wrong += gain < 0.9 if taken else gain > 1 / 0.9
                chosen = "pixels" if taken else "transforms"
                print(f"{kernel:2} {pool:2} {channels:4} {epitomes:4} {gain:8.2f}x  {chosen}", flush=True)
    print(f"the rule takes the slower one in {wrong} of {total} cases, by more than 10 % of a training step")


def forced(run: Callable[[], None], few: bool) -> Callable[[], None]:
    """Returns the function with the answer of `has_few_channels` replaced by ``few``."""

    def forced_run() -> None:
        with patch.object(functional, "has_few_channels", lambda *_: few):
            run()

    return forced_run


if __name__ == "__main__":
    main()
