"""Where `winograd` in torch calls beats `direct`: the measurements behind `ops.choice.saves_enough`.

    python benchmarks/auto.py

Prints how much faster `winograd` is than `direct`, and which one ``algorithm="auto"`` takes, for several filters,
windows, channels and image sizes. The rule is right if it takes the faster one, or if the two are within 10 %.
"""

from epitomic.bench.cases import Case, Contestant, enter
from epitomic.bench.timing import interleaved
from epitomic.ops.choice import saves_enough


def main() -> None:
    wrong = total = 0
    print(" W  D    C    K  px  batch  forward  training  auto")
    for kernel, pool in ((2, 2), (3, 2), (5, 2), (3, 3), (5, 3), (6, 3)):
        for channels, epitomes in ((1, 32), (3, 96), (16, 32), (32, 64), (64, 64), (128, 128)):
            for size, batch in ((14, 64), (32, 32)):
                case = Case("", channels, epitomes, kernel, pool, pool, size=size, batch=batch)
                entries = {a: enter(case, Contestant(a, "channels_last")) for a in ("winograd", "direct")}
                functions = {(a, "forward"): e.inference for a, e in entries.items()}
                functions |= {(a, "training"): e.training for a, e in entries.items()}
                times = interleaved(functions, repetitions=5)
                gains = [(times["direct", m] / times["winograd", m]).median for m in ("forward", "training")]
                taken = saves_enough(case.geometry, channels)
                total += 1
                wrong += gains[1] < 0.9 if taken else gains[1] > 1 / 0.9
                print(
                    f"{kernel:2} {pool:2} {channels:4} {epitomes:4} {size:3} {batch:6} "
                    f"{gains[0]:7.2f}x {gains[1]:8.2f}x  {'winograd' if taken else 'direct'}",
                    flush=True,
                )
    print(f"the rule takes the slower one in {wrong} of {total} cases, by more than 10 % of a training step")


if __name__ == "__main__":
    main()
