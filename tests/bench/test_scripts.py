"""The scripts in benchmarks/ still fit the package that they time."""

import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_imports(script: Path) -> None:
    assert callable(runpy.run_path(str(script))["main"])
