"""Writes each results/TABLE/table.md from its runs, and the figures of README.md and docs/, so that nobody types them.

    python tools/fill_tables.py            writes the files
    python tools/fill_tables.py --check    writes nothing; the exit status is 1 if a file is out of date

The text between `<!-- figures: NAME -->` and `<!-- end -->` is replaced by what the function of that name returns. The
functions are in the files beside this one.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import accuracy_figures
import claim_figures
import export_figures
import gpu_figures
import input_figures
import own_figures
import timing_figures
from highlights import highlights
from paper_numbers import paper_numbers
from records import RESULTS, ROOT, finished_runs, published_tables

from epitomic.reproduction.accuracy_table import accuracy_table
from epitomic.reproduction.table_plans import TABLES
from epitomic.reproduction.transfer_table import transfer_table

FIGURES: dict[str, Callable[..., str]] = {
    "highlights": highlights,
    **timing_figures.FIGURES,
    "paper-numbers": paper_numbers,
    **accuracy_figures.FIGURES,
    **claim_figures.FIGURES,
    **export_figures.FIGURES,
    **gpu_figures.FIGURES,
    **input_figures.FIGURES,
    **own_figures.FIGURES,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, only report files that are out of date")
    check = parser.parse_args().check
    changed = []

    def write(path: Path, text: str) -> None:
        if text != path.read_text():
            changed.append(path.relative_to(ROOT))
            if not check:
                path.write_text(text)

    for name in published_tables():
        write(RESULTS / name / "table.md", accuracy_table(TABLES[name], finished_runs(name)))
    for folder in sorted(RESULTS.glob("caltech101*")):
        write(folder / "table.md", transfer_table(folder))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        fill = partial(fill_block, page=path)
        write(path, re.sub(r"(<!-- figures: (.+?) -->\n).*?(<!-- end -->)", fill, path.read_text(), flags=re.DOTALL))
    for path in changed:
        print(f"{path} {'is out of date: run python tools/fill_tables.py' if check else 'written'}")
    return 1 if check and changed else 0


def fill_block(match: re.Match[str], page: Path) -> str:
    """Returns a block with its figures; links to results/ are made relative to the page."""
    name, *arguments = match[2].split()
    figures = FIGURES[name](*arguments).replace("](results/", f"]({os.path.relpath(RESULTS, page.parent)}/")
    return f"{match[1]}{figures}{match[3]}"


if __name__ == "__main__":
    sys.exit(main())
