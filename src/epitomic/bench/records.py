"""Writes measurements to a CSV file, with the facts about the machine at the end of each row."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_records(
    path: Path | None,
    columns: Iterable[str],
    rows: Iterable[Iterable[object]],
    facts: Mapping[str, object] | None = None,
    *,
    append: bool = False,
) -> None:
    """Writes rows and facts under a line of column names.

    Args:
        path: The file; missing folders are made. None writes nothing.
        columns: Names of the values in each row.
        rows: The measurements.
        facts: Name and value of what is the same in all rows, such as `support.machine.timing_facts`.
        append: Whether to add the rows to a file that exists.
    """
    if path is None:
        return
    facts = facts or {}
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = append and path.exists()
    with path.open("a" if append else "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not begun:
            writer.writerow([*columns, *facts])
        writer.writerows([*row, *facts.values()] for row in rows)
