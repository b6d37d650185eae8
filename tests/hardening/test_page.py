"""The page of the hunt and of the kills."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("safetensors", reason="needs safetensors: pip install 'epitomic[train]'")
pytest.importorskip("datasets", reason="needs datasets: pip install 'epitomic[images]'")
if sys.platform == "win32":
    pytest.skip("the page is written on POSIX systems alone", allow_module_level=True)

from tests.hardening import page
from tests.hardening.kills import AT_LEAST, Scenario, following


def test_two_programs_that_write_at_once_keep_both_sections(tmp_path: Path) -> None:
    """Before, one of them wrote back the page that it had read before the other wrote its section."""
    path = tmp_path / "page.md"
    with mock.patch.multiple(page, commit=str, processor=str):
        children = []
        for child in range(4):
            children.append(os.fork())
            if children[-1] == 0:
                for number in range(20):
                    page.write_section(path, f"Section {child}", f"{number}\n", "", "x")
                os._exit(0)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    text = path.read_text()
    assert all(f"\n## Section {child}\n\n19\n" in text for child in range(4))
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_each_command_gets_its_kills() -> None:
    fast, slow = (Scenario(name, lambda folder: [], lambda folder: "") for name in ("fast", "slow"))
    counts = {name: {"kills": 0, "seconds": 0.0} for name in ("fast", "slow")}
    for _ in range(1000):
        name = following([fast, slow], counts, 1000).name
        counts[name]["kills"] += 1
        counts[name]["seconds"] += 1e6 if name == "slow" else 1e-3
    assert counts["slow"]["kills"] == AT_LEAST
    assert counts["fast"]["kills"] == 1000 - AT_LEAST
