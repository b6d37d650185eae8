"""Fixtures of these tests."""

from tests.browsers import browser  # noqa: F401
from tests.runs import folder, make_run, one_thread  # noqa: F401
