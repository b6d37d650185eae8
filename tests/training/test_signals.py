"""Signals stop a training after its step."""

from __future__ import annotations

import os
import signal

import pytest

from epitomic.training.signals import StopSignals


def test_signals_are_noted_and_handlers_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as stop:
        assert stop.received == 0
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before
