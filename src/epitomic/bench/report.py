"""The benchmark's table, CSV and plot."""

from __future__ import annotations

import csv
import dataclasses
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import torch

from epitomic._version import __version__
from epitomic.bench.run import Row
from epitomic.machine import commit, processor

HEADER = ("layer", "", "", "pair ms", "our ms", "speed-up (quartiles)", "GFLOP/s", "of GEMM", "memory")


def table(rows: Sequence[Row]) -> str:
    """Rows for the eye: medians, and the speed-up with its quartiles over the repetitions."""
    lines = [HEADER]
    for row in rows:
        memory = ""
        if row.memory is not None and row.pair_memory:
            memory = f"{row.memory / row.pair_memory:.2f} ({row.memory / 1e6:.0f}/{row.pair_memory / 1e6:.0f} MB)"
        lines.append(
            (
                f"{row.case.name}: {row.case.text()}" if row.mode == "forward" else "",
                row.mode,
                row.algorithm + (" + norm" if row.normalize else ""),
                f"{row.pair_milliseconds.median:.1f}",
                f"{row.milliseconds.median:.1f}",
                str(row.speedup),
                f"{row.gflops:.0f}",
                f"{row.gflops / row.best_gemm:.0%}",
                memory,
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(text)


def machine() -> dict[str, str]:
    """What ran this: processor, threads and versions."""
    return {
        "cpu": processor(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "os": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "epitomic": __version__,
        "commit": commit() or "",
    }


def save(rows: Sequence[Row], folder: Path, facts: dict[str, str]) -> list[Path]:
    """Writes bench.csv, with the facts of `machine`, and bench.png where matplotlib is installed; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "bench.csv"]
    with files[0].open("w", newline="") as file:
        writer = csv.writer(file)
        sizes = [f.name for f in dataclasses.fields(rows[0].case)]
        figures = ["ms", "ms_q1", "ms_q3", "pair_ms", "pair_ms_q1", "pair_ms_q3", "speedup", "speedup_q1", "speedup_q3"]
        columns = ["mode", "algorithm", "normalize", "format", "pair_format", "n", *figures]
        writer.writerow([*sizes, *columns, "gflops", "best_gemm_gflops", "memory_bytes", "pair_memory_bytes", *facts])
        for row in rows:
            samples = (row.milliseconds, row.pair_milliseconds, row.speedup)
            numbers = [f"{v:.4g}" for s in samples for v in (s.median, *s.spread)]
            writer.writerow(
                [
                    *dataclasses.astuple(row.case),
                    *(row.mode, row.algorithm, row.normalize, row.format, row.pair_format, len(row.speedup.values)),
                    *numbers,
                    *(f"{row.gflops:.1f}", f"{row.best_gemm:.1f}", row.memory, row.pair_memory),
                    *facts.values(),
                ]
            )
    try:
        from epitomic.bench.picture import save_picture
    except ImportError:
        return files
    return [*files, save_picture(rows, folder / "bench.png")]
