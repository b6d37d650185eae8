"""The benchmark's tables, in plain text and as CSV files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from epitomic.bench.contest import LayerResult
from epitomic.bench.image_input import OPEN, InputResult, Need
from epitomic.bench.networks import NetworkResult
from epitomic.bench.records import write_records
from epitomic.support.console import text_table

LAYER_HEAD = ("layer", "", "", "pair ms", "our ms", "speed-up (quartiles)", "GFLOP/s", "of GEMM", "memory")
LAYER_COLUMNS = (
    *("mode", "algorithm", "normalize", "dtype", "format", "pair_format", "n"),
    *("ms", "ms_q1", "ms_q3", "pair_ms", "pair_ms_q1", "pair_ms_q3", "speedup", "speedup_q1", "speedup_q3"),
    *("gflops", "best_gemm_gflops", "memory_bytes", "pair_memory_bytes"),
)
NETWORK_HEAD = ("network", "twin", "input", "twin ms", "our ms", "our time / twin's (quartiles)")
NETWORK_COLUMNS = (
    *("network", "twin", "input", "n", "format", "twin_format"),
    *("ms", "twin_ms", "share", "share_q1", "share_q3"),
)

INPUT_HEAD = ("step", "workers", "files", "images/s (quartiles)", "core us/image")
INPUT_COLUMNS = ("step", "workers", "cold", "n", "rate", "rate_q1", "rate_q3", "core_us", "core_us_q1", "core_us_q3")
RATES = (1000, 4000, 8000)  # images/s that one GPU or several may ask for


def layer_table(results: Sequence[LayerResult]) -> str:
    """Shows the medians of each layer, and the speed-up with its quartiles."""
    rows = []
    for r in results:
        memory = ""
        if r.memory is not None and r.pair_memory:
            memory = f"{r.memory / r.pair_memory:.2f} ({r.memory / 1e6:.0f}/{r.pair_memory / 1e6:.0f} MB)"
        name = f"{r.case.name}: {r.case.text()}" if r.mode == "forward" and r.dtype == "float32" else ""
        algorithm = r.algorithm + (" + norm" if r.normalize else "") + (f", {r.dtype}" if r.dtype != "float32" else "")
        times = [f"{sample.median:.1f}" for sample in (r.pair_milliseconds, r.milliseconds)]
        rows.append(
            [
                name,
                r.mode,
                algorithm,
                *times,
                str(r.speedup),
                f"{r.gflops:.0f}",
                f"{r.gflops / r.best_gemm:.0%}",
                memory,
            ]
        )
    return text_table(LAYER_HEAD, rows, right=(3, 4, 6, 7))


def network_table(results: Sequence[NetworkResult]) -> str:
    """Shows the medians of each network and its twin, and the ratio with its quartiles."""
    rows = []
    for r in results:
        times = [f"{sample.median:.0f}" for sample in (r.twin_milliseconds, r.milliseconds)]
        rows.append([r.pair.ours, r.pair.twin, r.pair.text(), *times, str(r.share)])
    return text_table(NETWORK_HEAD, rows, right=(3, 4))


def save_layers(results: Sequence[LayerResult], path: Path, facts: dict[str, str]) -> None:
    """Writes the timings of layers to a CSV file, with the facts about the machine."""
    sizes = [field.name for field in dataclasses.fields(results[0].case)]
    rows = []
    for r in results:
        what = (r.mode, r.algorithm, r.normalize, r.dtype, r.format, r.pair_format, len(r.speedup.values))
        samples = (r.milliseconds, r.pair_milliseconds, r.speedup)
        numbers = [f"{value:.4g}" for s in samples for value in (s.median, *s.quartiles)]
        rates = (f"{r.gflops:.1f}", f"{r.best_gemm:.1f}", r.memory, r.pair_memory)
        rows.append([*dataclasses.astuple(r.case), *what, *numbers, *rates])
    write_records(path, [*sizes, *LAYER_COLUMNS], rows, facts)


def save_networks(results: Sequence[NetworkResult], path: Path, facts: dict[str, str]) -> None:
    """Writes the timings of networks to a CSV file, with the facts about the machine."""
    rows = []
    for r in results:
        what = (r.pair.ours, r.pair.twin, r.pair.text(), len(r.share.values), r.format, r.twin_format)
        numbers = (r.milliseconds.median, r.twin_milliseconds.median, r.share.median, *r.share.quartiles)
        rows.append([*what, *(f"{value:.4g}" for value in numbers)])
    write_records(path, NETWORK_COLUMNS, rows, facts)


def input_table(results: Sequence[InputResult]) -> str:
    """Shows images a second and core time per image of each step; opening has seconds instead."""
    rows = []
    for r in results:
        files = "cold" if r.cold else "warm"
        if r.step == OPEN:
            rows.append([r.step, "", files, f"{1 / r.rate.median:.3f} s", f"{r.core.median:.3f} s"])
        else:
            low, high = r.rate.quartiles
            rate = f"{r.rate.median:,.0f} ({low:,.0f}-{high:,.0f})"
            rows.append([r.step, str(r.workers or ""), files, rate, f"{1e6 * r.core.median:,.0f}"])
    return text_table(INPUT_HEAD, rows, right=(1, 3, 4))


def need_table(needs: Sequence[Need], core: float) -> str:
    """Shows how many cores of workers each network keeps busy; ``core`` is the workers' core seconds per image."""
    rows = [[n.network, f"trains here ({n.device})", f"{n.rate:,.1f}", f"{n.cores:.2f}"] for n in needs]
    rows += [["any network", "worked out", f"{rate:,}", f"{rate * core:.1f}"] for rate in RATES]
    return text_table(("network", "", "images/s", "cores of workers"), rows, right=(2, 3))


def save_input(results: Sequence[InputResult], path: Path, facts: dict[str, str]) -> None:
    """Writes the timings of the input to a CSV file, with the facts about the machine."""
    rows = []
    for r in results:
        samples = (r.rate, r.core * 1e6)
        numbers = [f"{value:.4g}" for s in samples for value in (s.median, *s.quartiles)]
        rows.append([r.step, r.workers, r.cold, len(r.rate.values), *numbers])
    write_records(path, INPUT_COLUMNS, rows, facts)
