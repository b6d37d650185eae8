"""Fixtures of these tests."""

from tests.runs import folder, make_run, one_thread  # noqa: F401
