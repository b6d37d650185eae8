from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not (ROOT / "tools").is_dir(), reason="not a source tree")
def test_figures_in_the_docs_are_those_in_results() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "fill_tables.py"), "--check"]
    finished = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
