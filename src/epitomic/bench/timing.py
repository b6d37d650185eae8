"""Timings that can be compared: every contestant once a repetition, in turn, and ratios within the repetition."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

MODES = ("forward", "training")


@dataclass(frozen=True)
class Sample:
    """Repeated measurements of one thing."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """First and third quartile."""
        if len(self.values) < 2:
            return self.values[0], self.values[0]
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return low, high

    def __mul__(self, factor: float) -> Sample:
        return Sample(tuple(v * factor for v in self.values))

    def __truediv__(self, other: Sample) -> Sample:
        """Ratios, repetition by repetition."""
        return Sample(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def __str__(self) -> str:
        low, high = self.spread
        return f"{self.median:.2f} ({low:.2f}-{high:.2f})"


Key = TypeVar("Key", bound=Hashable)


def interleaved(functions: Mapping[Key, Callable[[], object]], repetitions: int) -> Iterator[dict[Key, Sample]]:
    """Times each function once a repetition, in turn, after a warm-up; yields what is known after each repetition."""
    times: dict[Key, list[float]] = {name: [] for name in functions}
    for repetition in range(repetitions + 1):
        for name, function in functions.items():
            gc.collect()
            start = time.perf_counter()
            function()
            if repetition:
                times[name].append(time.perf_counter() - start)
        if repetition:
            yield {name: Sample(tuple(values)) for name, values in times.items()}


def best_gemm(seconds: float = 0.5) -> float:
    """The best float32 GFLOP/s of a matrix product on this machine now, over some sizes."""
    best = 0.0
    for n in (512, 1024, 2048):
        a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
        torch.mm(a, b, out=out)
        end = time.perf_counter() + seconds / 3
        while (start := time.perf_counter()) < end:
            torch.mm(a, b, out=out)
            best = max(best, 2 * n**3 / (time.perf_counter() - start) / 1e9)
    return best
