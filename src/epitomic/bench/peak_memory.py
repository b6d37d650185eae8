"""Peak memory of a training step, as the operating system reports it for a process of its own, or the GPU.

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

from epitomic.bench.cases import Case, Contestant, Entry, enter
from epitomic.support.devices import CPU
from epitomic.support.memory import forget_peak, knows_peak, peak_bytes, resident_bytes


def peak_memory(case: Case, contestant: Contestant, device: torch.device = CPU) -> int | None:
    """Returns the peak extra bytes of one training step, or None where nobody reports them."""
    if device.type == "cuda":
        return _measure_gpu(case, contestant, device)
    if device.type != "cpu" or not knows_peak():
        return None
    # Freed blocks return to the system at once, so the resident set holds only what is alive.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    environment["OMP_NUM_THREADS"] = str(torch.get_num_threads())
    request = json.dumps([asdict(case), asdict(contestant)])
    command = [sys.executable, "-m", "epitomic.bench.peak_memory", request]
    return int(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def _measure_gpu(case: Case, contestant: Contestant, device: torch.device) -> int:
    entry = enter(case, contestant, device)
    entry.training()  # loads kernels and their workspaces
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    entry.training()
    return torch.cuda.max_memory_allocated(device) - before - _results(entry)


def _measure(case: Case, contestant: Contestant) -> int:
    # A small case first: libraries load and threads start before we measure. The epitomic layer runs it too, because
    # our pair leaves small cases to torch, and the first call of our operator imports a hundred megabytes of torch.
    small = replace(case, in_channels=8, out_channels=8, batch=1)
    for one in (contestant, replace(contestant, what="auto", dtype="float32")):
        enter(small, one).training()
    entry = enter(case, contestant)
    forget_peak()
    before = resident_bytes()
    entry.training()
    return peak_bytes() - before - _results(entry)


def _results(entry: Entry) -> int:
    """Returns the bytes of the output and of all gradients."""
    return sum(t.numel() * t.element_size() for t in (*entry.inputs, entry.dy))


if __name__ == "__main__":
    case, contestant = json.loads(sys.argv[1])
    print(_measure(Case(**case), Contestant(**contestant)))
