"""Where patches that become pixels beat Winograd transforms: the measurements behind `functional.has_few_channels`.

    python benchmarks/few_channels.py            first layers, whose input needs no gradient
    python benchmarks/few_channels.py --inner    inner ones

Prints, for filters, windows, channels and epitomes, how many times as fast a training step of the native kernel is by
`_pixels_to_channels`, without transforms, as with them, and whether the rule takes it. A rule is right where it takes
the faster one, or where the two are within 10 %.
"""

import argparse
from collections.abc import Callable
from unittest.mock import patch

from epitomic import functional
from epitomic.bench.contest import Case, Contestant, enter
from epitomic.bench.timing import interleaved

FILTERS = ((2, 2), (3, 2), (5, 2), (7, 2), (3, 3), (6, 3))  # W, D
CHANNELS = (1, 2, 3, 4, 6, 8)
EPITOMES = (32, 128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inner", action="store_true")
    parser.add_argument("--repetitions", type=int, default=5)
    args = parser.parse_args()
    wrong = total = 0
    print(" W  D    C    K  training  rule", flush=True)
    for kernel, pool in FILTERS:
        for channels in CHANNELS:
            for epitomes in EPITOMES:
                case = Case("", channels, epitomes, kernel, pool, pool, size=34, batch=32, first=not args.inner)
                run = enter(case, Contestant("native", "channels_last")).training
                functions = {few: forced(run, few) for few in (False, True)}
                (*_, times) = interleaved(functions, args.repetitions)
                gain = (times[False] / times[True]).median
                taken = functional.has_few_channels(epitomes, channels, (kernel, kernel), (pool, pool))
                total += 1
                wrong += gain < 0.9 if taken else gain > 1 / 0.9
                chosen = "pixels" if taken else "transforms"
                print(f"{kernel:2} {pool:2} {channels:4} {epitomes:4} {gain:8.2f}x  {chosen}", flush=True)
    print(f"the rule takes the slower one, by more than 10 % of a training step, in {wrong} of {total} cases")


def forced(run: Callable[[], None], few: bool) -> Callable[[], None]:
    """The function with the rule's answer given."""

    def forced_run() -> None:
        with patch.object(functional, "has_few_channels", lambda *_: few):
            run()

    return forced_run


if __name__ == "__main__":
    main()
