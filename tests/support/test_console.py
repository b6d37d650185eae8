"""The console helper: what is shown on a terminal and in a log."""

from __future__ import annotations

import io

import pytest

from epitomic.support import console
from epitomic.support.console import Progress, tell_part, text_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINE_EVERY", 0.0)
    log = io.StringIO()
    with Progress(4, unit="images", scale=2, stream=log) as progress:
        progress.update("reading", 1)
    assert log.getvalue().startswith("reading  ")
    assert "images/s" in log.getvalue()
    assert " left" in log.getvalue()


def test_a_log_is_not_flooded() -> None:
    log = io.StringIO()
    with Progress(1000, stream=log) as progress:
        for done in range(1000):
            progress.update("reading", done)
    assert log.getvalue() == ""


def test_a_terminal_gets_a_live_line_and_keeps_what_is_said() -> None:
    terminal = Terminal()
    with Progress(2, stream=terminal) as progress:
        progress.say("epoch 1: [50 %] done")
        progress.shown -= console.REFRESH  # as if some time had passed
        progress.update("epoch 2: [/] half", 1)
    assert "epoch 1: [50 %] done" in terminal.getvalue()
    assert "epoch 2: [/] half" in terminal.getvalue()  # brackets are no markup


def test_without_a_total_a_short_job_leaves_no_line_in_a_log() -> None:
    log = io.StringIO()
    with Progress(stream=log) as progress:
        progress.update("drawing")
    assert log.getvalue() == ""


def test_quiet_shows_nothing() -> None:
    log = io.StringIO()
    with Progress(2, quiet=True, stream=log) as progress:
        progress.update("reading", 1)
        progress.say("read")
    assert log.getvalue() == ""


def test_what_was_done_before_does_not_count_for_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 10.0])
    monkeypatch.setattr("epitomic.support.console.time.monotonic", lambda: next(clock))
    progress = Progress(100, done=80, unit="steps", quiet=True)
    progress.update("", 90)
    assert progress.pace() == "1 steps/s  0:10 left"


def test_tables_keep_their_columns() -> None:
    table = text_table(["network", "error"], [["a", "1.00"], ["longer", "12.00"]], right=[1]).splitlines()
    assert {len(line) for line in table} == {len("network  error")}


def test_parts_of_a_job_add_up_to_the_whole() -> None:
    told: list[tuple[str, float]] = []
    for number in range(2):
        tell = tell_part(lambda text, share: told.append((text, share)), number, 2)
        tell("half", 0.5)
        tell("all", 1)
    assert told == [("half", 0.25), ("all", 0.5), ("half", 0.75), ("all", 1)]


def test_a_terminal_shows_what_a_slow_job_does_at_once() -> None:
    terminal = Terminal()
    with Progress(1, stream=terminal) as progress:
        progress.update("reading the images", 0)
    assert "reading the images" in terminal.getvalue()
