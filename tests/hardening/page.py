"""The page results/hardening.md: one section for each test, with its count and the command that made it."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from epitomic.support.files import write_text
from epitomic.support.machine import commit, processor, timestamp

HEAD = "# Hardening: what was tested, and how often\n\nWritten by `make test-hunt` and `make test-kill`.\n"


def write_section(page: Path, title: str, text: str, table: str, command: str) -> None:
    """Replaces or adds a section of the page. Several programs may do so at once."""
    made = f"Made by `{command}` at commit {commit()} on {processor()}, {timestamp()}."
    section = f"\n## {title}\n\n{text}\n{table}\n{made}\n"
    pattern = re.compile(rf"\n## {re.escape(title)}\n.*?(?=\n## |\Z)", re.DOTALL)
    with _alone(page.parent):
        old = page.read_text(encoding="utf-8") if page.is_file() else HEAD
        new = pattern.sub(lambda _: section, old) if pattern.search(old) else old + section
        write_text(page, new)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until no other program is inside such a block with the same folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
