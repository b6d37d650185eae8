"""A process that used a process group skips Python's shutdown, in which Gloo may abort."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import atexit, sys, torch
from epitomic.training.exit import end_process
atexit.register(print, "shutdown")
if sys.argv[1] == "group":
    torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=0, world_size=1)
print("work")
end_process(3)
"""


@pytest.mark.parametrize(("kind", "status", "output"), [("group", 3, "work\n"), ("alone", 0, "work\nshutdown\n")])
def test_only_a_process_of_a_group_skips_the_shutdown(kind: str, status: int, output: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", SCRIPT, kind, str(tmp_path / "store")]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (status, output), ended.stderr
