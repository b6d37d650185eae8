"""Timings that can be compared: every contestant runs once in each repetition, and ratios are taken within it."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from epitomic.support.devices import CPU
from epitomic.support.stopwatch import timed

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Sample:
    """Repeated measurements of one thing, one value for each repetition.

    >>> print(Sample((4.0, 6.0, 8.0)) / Sample((2.0, 2.0, 2.0)))
    3.00 (2.50-3.50)
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile."""
        if len(self.values) < 2:
            return self.values[0], self.values[0]
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return low, high

    def __mul__(self, factor: float) -> Sample:
        return Sample(tuple(value * factor for value in self.values))

    def __truediv__(self, other: Sample) -> Sample:
        """Returns the ratio within each repetition."""
        return Sample(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def __str__(self) -> str:
        low, high = self.quartiles
        return f"{self.median:.2f} ({low:.2f}-{high:.2f})"


def interleaved(
    functions: Mapping[Key, Callable[[], object]],
    repetitions: int,
    tell: Callable[[int], object] = lambda done: None,
    device: torch.device = CPU,
) -> dict[Key, Sample]:
    """Times each function in turn, once in each repetition, after a first repetition that does not count.

    Args:
        functions: What to time.
        repetitions: How many times to time each.
        tell: Called after each repetition with the number of repetitions so far.
        device: Where the functions compute, which decides how they are timed (`support.stopwatch`).

    Returns:
        The seconds of each function.
    """
    times: dict[Key, list[float]] = {name: [] for name in functions}
    collects = gc.isenabled()
    try:
        for repetition in range(repetitions + 1):
            gc.collect()
            gc.disable()  # a collection in the middle would count for the function that it falls into
            for name, function in functions.items():
                seconds = timed(function, device)
                if repetition:
                    times[name].append(seconds)
            if repetition:
                tell(repetition)
    finally:
        if collects:
            gc.enable()
    return {name: Sample(tuple(values)) for name, values in times.items()}


def best_gemm(device: torch.device = CPU, seconds: float = 0.5) -> float:
    """Returns the best float32 GFLOP/s that a matrix product reaches on this device now."""
    best, sizes = 0.0, (512, 1024, 2048) if device.type == "cpu" else (2048, 4096, 8192)
    for n in sizes:
        a, b, out = (torch.randn(n, n, device=device) for _ in range(3))
        multiply = partial(torch.mm, a, b, out=out)
        multiply()
        end = time.perf_counter() + seconds / len(sizes)
        while time.perf_counter() < end:
            best = max(best, 2 * n**3 / timed(multiply, device) / 1e9)
    return best
