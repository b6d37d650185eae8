"""The contest on one layer: our algorithms and our fused pair against torch's, forward and training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from epitomic.bench.cases import CASES, FORMATS, FUSED, PAIR, Case, Contestant, enter
from epitomic.bench.peak_memory import peak_memory
from epitomic.bench.timing import Sample, best_gemm, interleaved
from epitomic.ops.choice import has_bfloat16_instructions
from epitomic.support.console import Progress
from epitomic.support.devices import CPU

MODES = ("forward", "training")


@dataclass(frozen=True)
class LayerResult:
    """Timings of one algorithm on one case in one mode, beside those of the pair."""

    case: Case
    mode: str  # one of `MODES`
    algorithm: str  # of our epitomic layer, or `FUSED`; `PAIR` for torch's pair in bfloat16
    normalize: bool  # whether the epitomes are normalised (Eq. 3)
    dtype: str  # "float32" or "bfloat16"; the times of torch's pair beside it are always float32's
    format: str  # our faster memory format
    milliseconds: Sample  # our times
    pair_format: str  # the pair's faster memory format, and "compiled" if ``torch.compile`` made it faster
    pair_milliseconds: Sample  # the pair's times
    speedup: Sample  # the pair's time over ours, within each repetition
    gflops: float  # our GFLOP/s, counting the Winograd multiplications
    best_gemm: float  # GFLOP/s of the best matrix product in the same run
    memory: int | None = None  # our peak extra bytes in a training step, if measured
    pair_memory: int | None = None  # the pair's


def run_contest(
    case: Case,
    algorithms: Sequence[str],
    *,
    repetitions: int,
    progress: Progress,
    normalize: bool = False,
    memory: bool = False,
    compiled: bool = True,
    bfloat16: bool = True,
    device: torch.device = CPU,
) -> list[LayerResult]:
    """Times the pair and each algorithm on a case, all interleaved.

    Args:
        case: The layer.
        algorithms: Names of our algorithms.
        repetitions: Timings of each contestant. ``progress`` advances by one for each.
        progress: Shows how far the benchmark is.
        normalize: Time the normalised layer (Eq. 3) as well.
        memory: Measure peak memory as well.
        compiled: Whether torch's pair also runs under ``torch.compile``. Its faster form counts.
        bfloat16: Whether all of them, torch's pair included, also run in bfloat16 if the device has instructions for
            it.
        device: Where to compute. CUDA and ROCm devices are timed by their own events.
    """
    torch.compiler.reset()  # compile anew for each case: torch gives up after eight shapes
    ours = [
        Contestant(algorithm, "", norm)
        for algorithm in algorithms
        for norm in ((False, True) if normalize else (False,))
    ]
    ours.append(Contestant(FUSED, ""))
    if bfloat16 and _has_bfloat16(device):
        ours += [replace(c, dtype="bfloat16") for c in (Contestant(PAIR, ""), *ours)]

    def forms(contestant: Contestant) -> list[Contestant]:
        """Both memory formats, and for torch's pair eager and compiled."""
        ways = (False, True) if compiled and contestant.what == PAIR else (False,)
        return [replace(contestant, format=f, compiled=c) for f in FORMATS for c in ways]

    pair_forms = forms(Contestant(PAIR, ""))
    entries = {form: enter(case, form, device) for c in (Contestant(PAIR, ""), *ours) for form in forms(c)}
    functions = {(c, "forward"): entry.inference for c, entry in entries.items()}
    functions |= {(c, "training"): entry.training for c, entry in entries.items()}
    progress.update(f"{case.name}: warming up")

    def tell(done: int) -> None:
        progress.update(f"{case.name}: repetition {done} of {repetitions}", progress.done + 1)

    gemm = best_gemm(device)
    times = interleaved(functions, repetitions, tell, device)
    gemm = max(gemm, best_gemm(device))

    def faster(mode: str, candidates: list[Contestant]) -> Contestant:
        return min(candidates, key=lambda c: times[c, mode].median)

    results = []
    for contestant in ours:
        for mode in MODES:
            pair = faster(mode, pair_forms)
            best = faster(mode, forms(contestant))
            pair_time, our_time = times[pair, mode], times[best, mode]
            passes = 1 if mode == "forward" else 2 if case.first else 3
            measure = memory and mode == "training"
            if measure:
                progress.update(f"{case.name}: peak memory")
            results.append(
                LayerResult(
                    case=case,
                    mode=mode,
                    algorithm=contestant.what,
                    normalize=contestant.normalize,
                    dtype=contestant.dtype,
                    format=_form(best),
                    milliseconds=our_time * 1e3,
                    pair_format=_form(pair),
                    pair_milliseconds=pair_time * 1e3,
                    speedup=pair_time / our_time,
                    gflops=passes * case.winograd_flops() / our_time.median / 1e9,
                    best_gemm=gemm,
                    memory=peak_memory(case, replace(best, compiled=False), device) if measure else None,
                    pair_memory=peak_memory(case, replace(pair, compiled=False), device) if measure else None,
                )
            )
    return results


def _has_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16."""
    return has_bfloat16_instructions() if device.type == "cpu" else torch.cuda.is_bf16_supported(False)


def _form(contestant: Contestant) -> str:
    return contestant.format + (", compiled" if contestant.compiled else "")


def growth_cases() -> list[Case]:
    """Returns one layer on several batch sizes, then on several image sizes."""
    layer = CASES["3x3, pool 2"]
    cases = [layer.scaled(batch=n) for n in (4, 16, 64)] + [layer.scaled(size=s, batch=16) for s in (16, 32, 64)]
    return list(dict.fromkeys(cases))
