"""Two processes that compute together."""

import subprocess
import sys
from pathlib import Path

# Gloo's threads may still hold tensors while the interpreter shuts down, and torch then aborts (pytorch issue 190489).
# So the processes end by `os._exit`.
SCRIPT = """
import os, sys, torch, torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
{body}
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""


def run_two(body: str, folder: Path) -> None:
    """Runs code in two processes of one Gloo group, where ``rank`` is 0 or 1; both must succeed."""
    command = [sys.executable, "-c", SCRIPT.format(body=body)]
    processes = [subprocess.Popen([*command, str(rank), str(folder / "store")]) for rank in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
