"""Peak memory of a training step, as the operating system reports it for a process of its own.

We report extra memory only: the peak, minus what any layer needs. That is the input, the parameters, the output and all
gradients.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import torch

from epitomic.bench.cases import Case, Contestant, enter


def peak_memory(case: Case, contestant: Contestant) -> int | None:
    """Returns the peak extra bytes of one training step, or None where the system does not report them (not Linux)."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        return None
    # Freed blocks return to the system at once, so the resident set holds only what is alive.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    environment["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    request = json.dumps([asdict(case), asdict(contestant)])
    command = [sys.executable, "-m", "epitomic.bench.peak_memory", request]
    return int(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def _measure(case: Case, contestant: Contestant) -> int:
    # A small case first: libraries load and threads start before we measure. The epitomic layer runs it too, because
    # our pair leaves small cases to torch, and the first call of our operator imports a hundred megabytes of torch.
    small = replace(case, in_channels=8, out_channels=8, batch=1)
    for one in (contestant, replace(contestant, what="auto", dtype="float32")):
        enter(small, one).training()
    entry = enter(case, contestant)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets the peak
    before = _status("VmRSS")
    entry.training()
    results = sum(t.numel() * t.element_size() for t in (*entry.inputs, entry.dy))
    return _status("VmHWM") - before - results


def _status(key: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key + ":"))


if __name__ == "__main__":
    case, contestant = json.loads(sys.argv[1])
    print(_measure(Case(**case), Contestant(**contestant)))
