"""The page results/hardening.md: one section for each test, with its count and the command that made it."""

from __future__ import annotations

import re
from pathlib import Path

from epitomic.support.files import write_text
from epitomic.support.machine import commit, processor, timestamp

HEAD = "# Hardening: what was tested, and how often\n\nWritten by `make test-hunt` and `make test-kill`.\n"


def write_section(page: Path, title: str, text: str, table: str, command: str) -> None:
    """Replaces or adds a section of the page."""
    old = page.read_text(encoding="utf-8") if page.is_file() else HEAD
    made = f"Made by `{command}` at commit {commit()} on {processor()}, {timestamp()}."
    section = f"\n## {title}\n\n{text}\n{table}\n{made}\n"
    pattern = re.compile(rf"\n## {re.escape(title)}\n.*?(?=\n## |\Z)", re.DOTALL)
    new = pattern.sub(lambda _: section, old) if pattern.search(old) else old + section
    write_text(page, new)
