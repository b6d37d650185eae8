"""The README's figures: one layer, a whole network, and accuracy in the same time and in the same epochs."""

from __future__ import annotations

from collections.abc import Iterable

from records import RESULTS, finished_runs, read_csv
from timing_figures import is_kind, layer_rows, network_rows

from epitomic.bench.cases import FUSED
from epitomic.reproduction.accuracy_table import OverSeeds
from epitomic.reproduction.finished_runs import by_model
from epitomic.support.console import markdown_table

MACHINES = {
    "EPYC (AVX2)": "epyc-2-cores",
    "Xeon (AVX-512)": "xeon-2-cores",
}  # name -> end of the folders of its timings
FUSED_MACHINE = ("EPYC (AVX-512)", "epyc-avx512-2-cores")  # where our fused pair was timed


def highlights() -> str:
    """One table, for the README and for the page about epitomes."""
    speeds = {
        (machine, row["name"]): float(row["speedup"])
        for machine, folder in MACHINES.items()
        for row in layer_rows(folder)
        if is_kind(row, "training", "native")
    }
    layer = [f"{speeds[machine, 'paper layer 2']:.1f}x {{}}on {machine}" for machine in MACHINES]
    imagenet = next(
        1 / float(row["share"]) for row in network_rows(MACHINES["EPYC (AVX2)"]) if row["network"] == "epitomic"
    )
    fused = [
        float(row["speedup"])
        for row in read_csv(RESULTS / f"pairs-{FUSED_MACHINE[1]}" / "bench.csv")
        if is_kind(row, "training", FUSED)
    ]
    later = {
        (row["network"], row["twin"]): 1 / float(row["share"])
        for row in network_rows(FUSED_MACHINE[1])
        if row["input"].startswith("3 x 220")
    }
    short = by_model(finished_runs("cifar10_short"))
    longer = by_model(finished_runs("cifar10_equal_time"))["epitomic_small"]
    same_epochs, pooled, same_time = (
        f"{OverSeeds([run.error() for run in runs])} %"
        for runs in (short["epitomic_small"], short["maxpool_small"], longer)
    )
    pair = "`conv2d` + `max_pool2d`"
    rows = [
        (
            f"the paper's layer 2 against {pair}",
            f"{', '.join(layer).format('faster ', '')}; {span(speeds.values())} over six layers",
        ),
        (
            "the paper's ImageNet network against its max-pooled twin",
            f"{imagenet:.1f}x faster on EPYC (AVX2), {later['epitomic', 'maxpool@torch']:.1f}x on {FUSED_MACHINE[0]}",
        ),
        (
            "the same, but the twin has our layers too (`MaxPoolConv2d`)",
            f"{later['epitomic', 'maxpool']:.1f}x faster on {FUSED_MACHINE[0]}",
        ),
        (
            f"`MaxPoolConv2d` against {pair}, the same function",
            f"{span(fused)} as fast over {len(fused)} layers on {FUSED_MACHINE[0]}",
        ),
        (
            f"test error on CIFAR-10 after the same time, {len(longer)} seeds",
            f"epitomic {same_time}, max-pooling {pooled}",
        ),
        (
            f"test error on CIFAR-10 after the same epochs, {len(longer)} seeds",
            f"epitomic {same_epochs}, max-pooling {pooled}",
        ),
    ]
    return markdown_table(("what we compared", "result"), rows)


def span(speeds: Iterable[float]) -> str:
    low, *_, high = sorted(speeds)
    return f"{low:.1f}x to {high:.1f}x"
