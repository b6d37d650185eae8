"""The table of `epitomic robustness`: shifts of several runs as CSV and as text, and runs that belong together."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from epitomic.analysis.robustness import ShiftRow, Spread, spread_by_shift
from epitomic.support.console import text_table
from epitomic.support.errors import UserError
from epitomic.support.files import write_text
from epitomic.training.run_folder import RunFolder
from epitomic.training.run_names import labels

Groups = dict[str, list[ShiftRow]]  # label -> rows of one run, or of several seeds of one network


def group_runs(runs: Sequence[RunFolder], measured: Sequence[list[ShiftRow]]) -> Groups:
    """Groups the rows of each run by label. Runs that differ only in their seed share a label."""
    groups: Groups = {}
    for label, rows in zip(labels(runs), measured, strict=True):
        groups.setdefault(label, []).extend(rows)
    return groups


def group_rows(rows: Sequence[ShiftRow]) -> Groups:
    """Groups rows by network alone, for runs whose recipes are no longer on this machine.

    Several image sets, or several parent folders, make several groups, because their recipes may differ. Two runs with
    the same seed each become a group.
    """
    several = len({row.dataset for row in rows}) > 1
    networks: Groups = {}
    for row in rows:
        networks.setdefault(f"{row.model}, {row.dataset}" if several else row.model, []).append(row)
    groups: Groups = {}
    for label, members in networks.items():
        seeds = {row.run: row.seed for row in members}
        folders = {run: Path(run).parent.as_posix() for run in seeds}
        repeated = len({(folders[run], seed) for run, seed in seeds.items()}) < len(seeds)
        for row in members:
            where = row.run if repeated else folders[row.run] if len(set(folders.values())) > 1 else ""
            groups.setdefault(f"{label} ({where})" if where else label, []).append(row)
    return groups


def label_with_seeds(label: str, rows: Iterable[ShiftRow]) -> str:
    """Adds the number of seeds to a label if there are several."""
    count = len({row.run for row in rows})
    return f"{label} ({count} seeds)" if count > 1 else label


def robustness_table(groups: Groups) -> str:
    """Means over directions and seeds as text.

    In brackets are the lowest and the highest of several seeds, or the 95 % interval of one run.
    """
    shifts = sorted({row.shift for rows in groups.values() for row in rows})
    tables = []
    for value, title in (("error", "error, %, by shift in pixels"), ("changed", "predictions changed, %")):
        lines = [
            [label_with_seeds(label, rows), *map(_cell, spread_by_shift(rows, value).values())]
            for label, rows in groups.items()
        ]
        tables.append(text_table([title, *map(str, shifts)], lines, right=range(1, len(shifts) + 1)))
    return "\n\n".join(tables)


def _cell(found: Spread) -> str:
    return f"{100 * found.mean:.2f} ({100 * found.low:.2f}-{100 * found.high:.2f})"


def brackets(groups: Groups) -> str:
    """What the brackets of the table mean.

    >>> brackets({"a": [], "b": []})
    'the 95 % interval in brackets'
    """
    counts = [len({row.run for row in rows}) for rows in groups.values()]
    of_seeds, of_one = "the lowest and the highest seed", "the 95 % interval"
    if all(count > 1 for count in counts):
        return f"{of_seeds} in brackets"
    return f"{of_one}{f' of one seed, or {of_seeds},' if any(count > 1 for count in counts) else ''} in brackets"


def save_rows(rows: Iterable[ShiftRow], path: Path) -> None:
    """Writes rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [f.name for f in fields(ShiftRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    write_text(path, text.getvalue())


def read_rows(path: Path) -> list[ShiftRow]:
    """Reads the rows that `save_rows` wrote.

    Raises:
        UserError: If the file holds something else.
    """
    kinds = {"int": int, "float": float, "str": str}  # by the annotations of the fields
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        return [ShiftRow(**{f.name: kinds[str(f.type)](row[f.name]) for f in fields(ShiftRow)}) for row in table]
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = f"it has no column {error}" if isinstance(error, KeyError) else error
        raise UserError(f"cannot read {path}, which must hold rows of `epitomic robustness`: {reason}") from None


def check_alike(
    rows: Sequence[ShiftRow], runs: Sequence[RunFolder], *, maximum: int, images: int | None, path: Path
) -> None:
    """Raises an error if new rows could not be compared with those in ``path``.

    Args:
        rows: Rows in ``path``.
        runs: Runs to measure.
        maximum: Largest shift to measure, in pixels.
        images: Number of test images to measure; None means all.
        path: The CSV file.
    """
    if not rows:
        return
    kept = (max(row.shift for row in rows), rows[0].images)
    sizes = [len(run.test) for run in runs] or [kept[1]]
    for size in sizes if images is None else [min(images, size) for size in sizes]:
        if (maximum, size) != kept:
            raise UserError(
                f"{path} has shifts of up to {kept[0]} pixels of {kept[1]} images, and this would be of up to "
                f"{maximum} pixels of {size}: name another --out"
            )
