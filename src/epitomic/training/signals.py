"""Stops a training cleanly: Ctrl-C and SIGTERM take effect after the current step."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any


class Stopped(Exception):  # noqa: N818
    """A signal stopped the training; its text is the path of the checkpoint.

    Attributes:
        number: Number of the signal.
    """

    def __init__(self, number: int, path: str) -> None:
        super().__init__(path)
        self.number = number


class StopSignals:
    """Notes Ctrl-C and SIGTERM while it is entered. A second Ctrl-C interrupts at once.

    Attributes:
        received: Number of the first signal, or 0.
    """

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
