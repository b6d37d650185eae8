"""The compiled library in another process: turned off, or as another target."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from epitomic.ops import library

pytestmark = pytest.mark.skipif(library.NATIVE.library is None, reason=f"native kernel {library.NATIVE.reason}")


def run_python(code: str, **environment: str) -> str:
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout


def test_can_be_turned_off() -> None:
    code = "from epitomic.ops.library import NATIVE; print(NATIVE)"
    assert "turned off by EPITOMIC_NATIVE=0" in run_python(code, EPITOMIC_NATIVE="0")
    assert "this machine has" in run_python(code, EPITOMIC_NATIVE="abacus")


def usable_targets() -> list[str]:
    native = library.NATIVE.library
    if native is None:
        return []
    return [t for t in native.epitomic_targets().decode().split() if native.epitomic_supported(t.encode())]


@pytest.mark.parametrize("target", usable_targets())
def test_every_target(target: str) -> None:
    """Every target has its own width of vectors and panels, so each is tested, not only the best one.

    The channels and epitomes fill a part of a vector, one vector of a panel, or a panel and a bit, for every width.
    """
    code = f"""
import torch
from epitomic.ops import library, native, winograd
from epitomic.ops.operands import Grid, Operands
assert library.NATIVE.target == "{target}"
for c, k in ((70, 21), (12, 48), (3, 8), (20, 5), (33, 12)):
    tensors = torch.randn(3, 20, 20, c), torch.randn(k, c, 5, 5), torch.randn(k)
    grid = Grid.of_patches((20, 20), (5, 5), (3, 3), (2, 2), (1, 1))
    case, doubles = (Operands(*ts, None, grid) for ts in (tensors, [t.double() for t in tensors]))
    y, p = native.forward(case)
    want, _ = winograd.forward(doubles)
    print((y - want).abs().max().item() < 1e-3)
    dy, needs = torch.randn_like(y), (True, True, True, False)
    got = native.backward(dy, None, p, case, needs)
    want = winograd.backward(dy.double(), None, p, doubles, needs)
    print(*((g - w).abs().max().item() < 1e-2 for g, w in zip(got, want) if g is not None))
"""
    assert run_python(code, EPITOMIC_NATIVE=target).split() == ["True"] * 20
