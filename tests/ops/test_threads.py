"""The threads of the native kernel."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from epitomic.ops.library import NATIVE

pytestmark = pytest.mark.skipif(NATIVE.library is None, reason=f"native kernel {NATIVE.reason}")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_works_after_fork() -> None:
    """Helper threads do not survive a fork, such as that of a data loader. The child makes its own."""
    code = """
import os, torch
from epitomic.ops import native
torch.set_num_threads(2)
from epitomic.ops.operands import Grid, Operands
grid = Grid.of_patches((20, 20), (4, 4), (3, 3), (1, 1), (0, 0))
case = Operands(torch.randn(4, 20, 20, 8), torch.randn(8, 8, 4, 4), None, None, grid)
y, _ = native.forward(case)
pid = os.fork()
if pid == 0:
    torch.set_num_threads(2)
    os._exit(0 if torch.equal(native.forward(case)[0], y) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
