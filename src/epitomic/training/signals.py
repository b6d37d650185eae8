"""Ctrl-C and SIGTERM as a wish to stop after the step, not in the middle of one."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any


class StopSignals:
    """While entered, `received` is the first such signal, or 0. A second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = self.received or number
