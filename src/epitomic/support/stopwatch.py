"""Times a function on any device."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def timed(function: Callable[[], object], device: torch.device) -> float:
    """Returns the seconds that ``function`` takes, including all work that it leaves to the device.

    CUDA and ROCm time it by events of their own, so that the time of starting it from Python hardly counts.
    """
    if device.type == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(device)
        start.record()
        function()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3
    _wait(device)
    began = time.perf_counter()
    function()
    _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    """Waits until the device has finished. The CPU always has."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
