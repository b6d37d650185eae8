"""Damages files at random, to show that a reader refuses them with one clear error."""

from __future__ import annotations

import numpy as np
import pytest

VARIANTS = pytest.mark.parametrize("variants", [40, pytest.param(1000, marks=pytest.mark.long)])


def mutate(raw: bytes, rng: np.random.Generator) -> bytes:
    """One of: some bytes changed, a cut, an insertion, a piece twice, a piece zeroed."""
    data = bytearray(raw)
    kind, at = rng.integers(5), int(rng.integers(len(data)))
    length = int(rng.integers(1, 40))
    if kind == 0:
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at:at] = rng.bytes(length)
    elif kind == 3:
        data[at:at] = data[at : at + length]
    else:
        data[at : at + length] = bytes(min(length, len(data) - at))
    return bytes(data)
