"""What a training counts: steps, sums, seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass
class State:
    """Where a training is: with the tensors and the rate's state, all that a checkpoint holds."""

    epoch: int = 0
    batch: int = 0  # of the epoch, the next one to do
    images: int = 0  # of the epoch, seen so far
    bad: int = 0  # of the epoch, that could not be read
    loss: float = 0.0  # summed over the epoch's images so far
    errors: float = 0.0  # the same
    best_error: float | None = None  # on the validation set, of the epoch whose weights are kept
    best_loss: float | None = None  # decides among epochs of the same error
    best_epoch: int | None = None
    seconds: float = 0.0  # of training so far, over all resumptions
    cpu_seconds: float = 0.0  # of all cores, this process alone
    rows: list[list[Any]] = field(default_factory=list)  # of metrics.csv


class Sums(NamedTuple):
    """Over the images of a step."""

    loss: float
    errors: int
    images: int


class Clock:
    """Wall and processor seconds, going on from where an earlier session stopped."""

    def __init__(self, seconds: float, cpu_seconds: float) -> None:
        self.began, self.cpu_began = time.monotonic() - seconds, time.process_time() - cpu_seconds

    def read(self) -> tuple[float, float]:
        """Both, so far."""
        return time.monotonic() - self.began, time.process_time() - self.cpu_began
