"""Run folders made by hand."""

from tests.runs import make_run

__all__ = ["make_run"]
