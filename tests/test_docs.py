"""README.md and the pages of docs/: their code runs, and their figures are those in results/."""

from __future__ import annotations

import csv
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from epitomic.analysis.robustness import mean_by_shift
from epitomic.analysis.robustness_table import read_rows
from epitomic.cli import main

ROOT = Path(__file__).parents[1]
EPITOME = ROOT / "docs" / "what-is-an-epitome.md"


@pytest.mark.skipif(not (ROOT / "tools").is_dir(), reason="not a source tree")
def test_figures_in_the_docs_are_those_in_results() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "fill_tables.py"), "--check"]
    finished = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def run_code(page: Path, names: dict[str, Any]) -> int:
    """Runs the Python blocks of a page, one after the other, and returns how many there are."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    for block in blocks:
        exec(block, names)
    return len(blocks)


def test_the_code_of_the_readme_runs() -> None:
    names: dict[str, Any] = {"images": torch.rand(2, 3, 32, 32)}
    assert run_code(ROOT / "README.md", names) == 2
    assert names["y"].shape == (16, 192, 17, 17)
    assert names["scores"].shape == (2, 10)


def test_the_readme_is_short_and_agrees_with_the_rest() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 150
    claim = re.search(r"^\*\*One PyTorch layer .*: (\S+x to \S+x) faster to train on a CPU\.\*\*$", text, re.MULTILINE)
    assert claim
    assert f"{claim[1]} over six layers" in text  # in the table that is made from results/
    python = re.search(r'requires-python = ">=(.+)"', (ROOT / "pyproject.toml").read_text())
    assert python
    assert f"Python {python[1]} or later" in text


@pytest.mark.parametrize("name", ["README.md", "CITATION.cff", "docs/what-is-an-epitome.md"])
def test_the_paper_is_cited_with_its_link(name: str) -> None:
    assert "https://arxiv.org/abs/1406.2732" in (ROOT / name).read_text()


def test_what_is_an_epitome_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    assert run_code(EPITOME, {}) == 5
    promised = re.findall(r"^print\(.*\)  # (.+)$", EPITOME.read_text(), re.MULTILINE)
    assert len(promised) == 12
    assert capsys.readouterr().out.splitlines() == promised


def test_what_is_an_epitome_has_the_errors_of_shifted_images() -> None:
    rows = read_rows(ROOT / "results" / "robustness-mnist.csv")
    written = re.findall(r"^\| (\d) pixels? \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", EPITOME.read_text(), re.MULTILINE)
    assert [line[0] for line in written] == ["0", "1", "2", "3"]
    for shift, *figures in written:
        for model, figure in zip(("maxpool_small", "epitomic_small", "maxout_small"), figures, strict=True):
            errors = mean_by_shift(row for row in rows if row.model == model)[int(shift)]  # one a seed
            assert f"{100 * statistics.fmean(errors):.2f}" == figure


@pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="not a source tree")
def test_what_the_help_of_prepare_says_of_subsampling_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with (ROOT / "results" / "image-input-epyc-2-cores" / "jpeg.csv").open(newline="") as file:
        rows = {(row["quality"], row["subsampling"]): row for row in csv.DictReader(file)}
    best, small = rows["95", "4:4:4"], rows["90", "4:2:0"]
    with pytest.raises(SystemExit):
        main(["prepare", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    kb, decibels = ([f"{float(row[key]):.0f}" for row in (small, best)] for key in ("kb", "psnr_db"))
    assert f"takes {kb[0]} kB an image instead of {kb[1]}" in told
    assert (
        f"decodes {float(small['relative']):.1f}x faster, but keeps less: {decibels[0]} dB instead of {decibels[1]}"
        in told
    )
