"""Where `winograd` in torch calls beats `direct`: the measurements behind the rule of ``algorithm="auto"``.

    python benchmarks/auto.py

Prints, for filters, windows, channels and image sizes, the speed of `winograd` over that of `direct`, and whether the
rule takes it. A rule is right where it takes the faster one, or where the two are within 10 %.
"""

from epitomic.bench.contest import Case, Contestant, enter
from epitomic.bench.timing import interleaved
from epitomic.functional import saves_enough


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
                (*_, times) = interleaved(functions, repetitions=5)
                gains = [(times["direct", m] / times["winograd", m]).median for m in ("forward", "training")]
                taken = saves_enough(case.geometry, channels)
                total += 1
                wrong += gains[1] < 0.9 if taken else gains[1] > 1 / 0.9
                print(
                    f"{kernel:2} {pool:2} {channels:4} {epitomes:4} {size:3} {batch:6} "
                    f"{gains[0]:7.2f}x {gains[1]:8.2f}x  {'winograd' if taken else 'direct'}",
                    flush=True,
                )
    print(f"the rule takes the slower one, by more than 10 % of a training step, in {wrong} of {total} cases")


if __name__ == "__main__":
    main()
