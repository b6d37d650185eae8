"""The repository's own files: workflows and issue forms fit their schemas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [("github-workflows", "workflows/*.yml"), ("github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yml")],
)
def test_github_files_fit_their_schema(schema: str, pattern: str) -> None:
    files = sorted(map(str, (ROOT / ".github").glob(pattern)))
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
