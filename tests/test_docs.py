from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not (ROOT / "tools").is_dir(), reason="not a source tree")
def test_figures_in_the_docs_are_those_in_results() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "fill_tables.py"), "--check"]
    finished = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_the_code_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {"images": torch.rand(2, 3, 32, 32)}
    for block in blocks:
        exec(block, names)
    assert names["y"].shape == (16, 192, 17, 17)
    assert names["scores"].shape == (2, 10)
