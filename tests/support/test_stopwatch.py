"""One function times the CPU by its clock, and CUDA by the device's own events."""

from __future__ import annotations

import time
from typing import ClassVar

import pytest
import torch

from epitomic.bench.timing import interleaved
from epitomic.support.stopwatch import timed


class FakeEvent:
    """An event of a device on which each function takes 3 milliseconds, whatever Python does meanwhile."""

    told: ClassVar[list[str]] = []
    clock: ClassVar[float] = 0.0

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.time = 0.0

    def record(self) -> None:
        self.told.append("record")
        self.time = FakeEvent.clock

    def synchronize(self) -> None:
        self.told.append("wait")

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.time - self.time


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    FakeEvent.told.clear()
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: FakeEvent.told.append(f"wait for {device}"))
    return torch.device("cuda:1")


def work() -> None:
    """Leaves work to the device."""
    FakeEvent.told.append("work")
    FakeEvent.clock += 3.0


def test_cuda_is_timed_by_its_events(cuda: torch.device) -> None:
    assert timed(work, cuda) == pytest.approx(3e-3)
    assert FakeEvent.told == ["wait for cuda:1", "record", "work", "record", "wait"]


def test_a_cpu_is_timed_by_its_clock() -> None:
    assert 0.02 <= timed(lambda: time.sleep(0.02), torch.device("cpu")) < 10


def test_the_contest_takes_the_times_of_the_events(cuda: torch.device) -> None:
    times = interleaved({"a": work, "b": lambda: None}, 2, device=cuda)
    assert times["a"].values == pytest.approx((3e-3, 3e-3))
    assert times["b"].values == (0.0, 0.0)
