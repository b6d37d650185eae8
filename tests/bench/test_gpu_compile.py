"""The Triton kernels compiled for GPUs that are not here: no spills, matrix instructions, little shared memory.

In a process of its own, because `TRITON_INTERPRET` and a cache folder are read when Triton is imported.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the package triton is not installed (extra gpu-dev, Linux x86-64)")

from epitomic.bench.gpu_compile import TARGETS, Compiled

ROOT = Path(__file__).parents[2]


def compiled(tmp_path: Path, *options: str) -> tuple[int, str, list[dict[str, str]]]:
    """Runs the command. Returns its exit status, what it said and its table."""
    out = tmp_path / "kernels.csv"
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "benchmarks/triton_kernels.py", "--out", str(out), *options]
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert out.is_file(), done.stdout + done.stderr
    with out.open(newline="") as file:
        return done.returncode, done.stdout, list(csv.DictReader(file))


def test_some_kernels_compile_for_all_targets(tmp_path: Path) -> None:
    kernels = ["match_forward", "input_gradient", "points_to_pixels"]
    options = ["--layers", "paper layer 6", "--precisions", "bfloat16", "--kernels", *kernels]
    status, said, rows = compiled(tmp_path, *options)
    assert status == 0, said
    assert {(row["kernel"], row["target"]) for row in rows} >= {(k, t) for k in kernels for t in TARGETS}
    assert all(int(row["matrix"]) > 0 for row in rows if row["kernel"] in kernels[:2])


@pytest.mark.long
def test_all_kernels_compile_as_the_table_says(tmp_path: Path) -> None:
    """Without spills, in shared memory that a GPU has, and with matrix instructions: else the status is 1."""
    status, said, rows = compiled(tmp_path)
    assert status == 0, said
    with (ROOT / "results" / "gpu" / "kernels.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len({row["kernel"] for row in rows}) == 10
    names = ("kernel", "layer", "precision", "target", "tile", "warps")
    assert [[row[name] for name in names] for row in rows] == [[row[name] for name in names] for row in table]


def test_problems_are_named() -> None:
    good = Compiled("match_forward", "a layer", "bfloat16", "gfx942", "64 x 64 x 64", 4, 100, 0, 1000, 8)
    assert not good.problems
    assert good._replace(spills=8).problems == ["spills 8"]
    assert good._replace(shared=70000).problems == ["takes 70000 bytes of shared memory, and there are 65536"]
    assert good._replace(matrix=0).problems == ["has no matrix instructions"]
    assert not good._replace(matrix=0, precision="float32").problems
