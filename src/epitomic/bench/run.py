"""One benchmark: which contestants meet, in what order, and the rows that come out."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from epitomic.bench.contest import CASES, FORMATS, PAIR, Case, Contestant, enter
from epitomic.bench.memory import peak_memory
from epitomic.bench.timing import MODES, Sample, best_gemm, interleaved


@dataclass(frozen=True)
class Row:
    """One contestant on one case in one mode, against the pair in its better format."""

    case: Case
    mode: str  # forward or training
    algorithm: str
    normalize: bool
    format: str  # ours: the faster one
    milliseconds: Sample
    pair_format: str
    pair_milliseconds: Sample
    speedup: Sample  # the pair's time over ours, within each repetition
    gflops: float  # of the Winograd multiplications
    best_gemm: float  # GFLOP/s of the best matrix product in the same run
    memory: int | None = None  # peak extra bytes of a training step
    pair_memory: int | None = None


class Progress:
    """What is running, on one line of a terminal, or on lines of their own elsewhere."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self.start = time.perf_counter()

    def say(self, text: str) -> None:
        """Shows the step that begins."""
        line = f"[{time.perf_counter() - self.start:4.0f} s] {text}"
        print(f"\r{line:<100}" if self.live else line, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def done(self) -> None:
        """Clears the line."""
        if self.live:
            print("\r" + " " * 100, end="\r", file=sys.stderr, flush=True)


def run(
    case: Case, algorithms: Sequence[str], *, repetitions: int, normalize: bool, memory: bool, progress: Progress
) -> list[Row]:
    """Times a case: the pair and each algorithm, in both memory formats, forward and training, all interleaved."""
    ours = [(a, n) for a in algorithms for n in ((False, True) if normalize else (False,))]
    contestants = [Contestant(PAIR, f) for f in FORMATS]
    contestants += [Contestant(a, f, n) for a, n in ours for f in FORMATS]
    entries = {c: enter(case, c) for c in contestants}
    functions = {(c, "forward"): entry.inference for c, entry in entries.items()}
    functions |= {(c, "training"): entry.training for c, entry in entries.items()}
    progress.say(f"{case.name}: warming up")
    gemm = best_gemm()
    times: dict[tuple[Contestant, str], Sample] = {}
    for done, known in enumerate(interleaved(functions, repetitions), 1):
        times = known
        pair, best = (
            min(s.median for (c, m), s in times.items() if (c.what == PAIR) == p and m == "training")
            for p in (True, False)
        )
        progress.say(f"{case.name}: repetition {done} of {repetitions}, training {pair / best:.2f}x the pair's speed")
    gemm = max(gemm, best_gemm())

    def better(what: str, normalize: bool, mode: str) -> Contestant:
        formats = [Contestant(what, f, normalize) for f in FORMATS]
        return min(formats, key=lambda c: times[c, mode].median)

    rows = []
    for algorithm, normalized in ours:
        for mode in MODES:
            pair_best, our_best = better(PAIR, False, mode), better(algorithm, normalized, mode)
            pair_time, our_time = times[pair_best, mode], times[our_best, mode]
            flops = case.winograd_flops() * (1 if mode == "forward" else 2 if case.first else 3)
            held: tuple[int | None, int | None] = (None, None)
            if memory and mode == "training":
                progress.say(f"{case.name}: peak memory")
                held = peak_memory(case, our_best), peak_memory(case, pair_best)
            rows.append(
                Row(
                    case=case,
                    mode=mode,
                    algorithm=algorithm,
                    normalize=normalized,
                    format=our_best.format,
                    milliseconds=our_time * 1e3,
                    pair_format=pair_best.format,
                    pair_milliseconds=pair_time * 1e3,
                    speedup=pair_time / our_time,
                    gflops=flops / our_time.median / 1e9,
                    best_gemm=gemm,
                    memory=held[0],
                    pair_memory=held[1],
                )
            )
    return rows


def growth(algorithm: str, *, repetitions: int, progress: Progress) -> list[Row]:
    """One layer over batch sizes, and over image sizes."""
    layer = CASES["3x3, pool 2"]
    cases = [layer.scaled(batch=n) for n in (4, 16, 64)] + [layer.scaled(size=s, batch=16) for s in (16, 32, 64)]
    rows: list[Row] = []
    for case in dict.fromkeys(cases):
        rows += run(case, [algorithm], repetitions=repetitions, normalize=False, memory=False, progress=progress)
    return rows
