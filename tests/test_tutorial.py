"""The tutorial: it runs from the first cell to the last, and what it shows is what comes out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install '.[dev]'")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install '.[dev]'")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install '.[dev]'")

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tutorial.ipynb"


def printed(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.get("text", "") for output in outputs)


def pictures(notebook: Any) -> int:
    return sum("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ()))


def check_outputs(notebook: Any) -> None:
    """The networks have outputs of one shape, both learn, the weights load, and there are two pictures."""
    text = printed(notebook)
    assert re.findall(r"(\w+): output (\(.*?\)), ([\d,]+) parameters", text) == [
        ("pooled_network", "(360, 10)", "6,346"),
        ("epitomic_network", "(360, 10)", "10,106"),
    ]
    errors = [float(error) for error in re.findall(r"([\d.]+) % test errors", text)]
    assert len(errors) == 2
    assert max(errors) < 5
    assert text.splitlines()[-1] == "True"
    assert pictures(notebook) == 2


def test_the_kept_outputs_are_whole_and_small() -> None:
    check_outputs(nbformat.read(NOTEBOOK, as_version=4))
    assert NOTEBOOK.stat().st_size < 300_000


def test_the_tutorial_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    check_outputs(notebook)
    assert [path.name for path in tmp_path.iterdir()] == ["epitomic-digits.pt"]
