"""Writes the matrices of ops/transforms.py as a C++ header for self_test.cpp.

python tests/native/write_maps.py FILE
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from epitomic.ops.transforms import MAX_POINTS, axis_transforms


def lines() -> Iterator[str]:
    """Yields the lines of the header. The numbers are hexadecimal, so nothing is rounded."""
    size = MAX_POINTS + 1
    yield "// Written by write_maps.py from ops/transforms.py: the maps of one axis, by sizes of patch and weights."
    yield "struct Maps { float output[64], patch[64], weight[64]; };"
    yield f"static const Maps MAPS[{size}][{size}] = {{"
    for patch in range(size):
        yield "{"
        for weight in range(size):
            if patch * weight == 0:
                yield "{},"
                continue
            maps = axis_transforms(patch, weight, torch.float32)
            tables = (maps.output.t(), maps.patch, maps.weight)  # (V, D), (V, P), (V, S)
            yield "{" + ", ".join(_list(t.flatten().tolist()) for t in tables) + "},"
        yield "},"
    yield "};"


def _list(values: list[float]) -> str:
    return "{" + ", ".join(f"{value.hex()}f" for value in values) + "}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("\n".join(lines()) + "\n", encoding="utf-8")
