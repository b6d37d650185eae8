"""Training by torch.compile. Most of it with a backend that makes no code, which saves half a minute."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch._dynamo.utils import counters

from epitomic.support.errors import UserError
from epitomic.support.files import read_sealed
from epitomic.training import compiling
from tests.training.conftest import run

SMALL = ("digits", "--model.width", "0.1", "--model.hidden", "8", "--batch_size", "64", "--threads", "1")
TINY = (*SMALL, "--model.conv-dropout", "0.2", "--epochs", "1", "--steps", "3", "--no-test")
COMPILED = (*TINY, "--compile", "true")


def last(folder: Path) -> Path:
    """The newest checkpoint of a run."""
    return max((folder / "checkpoints").glob("step-*.safetensors"))


def test_a_compiled_run_is_resumed_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    torch.compiler.reset()
    graphs = counters["stats"]["unique_graphs"]
    straight = run(tmp_path / "straight", "--save-every", "0", recipe=COMPILED)
    assert straight.returncode == 0, straight.stderr
    first = counters["stats"]["unique_graphs"] - graphs
    assert 0 < first <= 10  # masks of other steps compile nothing again
    assert read_sealed(tmp_path / "straight" / "recipe.json")["compile"] is True

    files = sorted((tmp_path / "straight" / "checkpoints").iterdir())
    cut = tmp_path / "cut"
    (cut / "checkpoints").mkdir(parents=True)
    for name in ("recipe.json", "run.json", "choices.json"):
        (cut / name).write_bytes((tmp_path / "straight" / name).read_bytes())
    (cut / "checkpoints" / files[0].name).write_bytes(files[0].read_bytes())  # as a crash leaves it
    torch.compiler.reset()
    resumed = run(cut, "--resume", recipe=COMPILED)
    assert resumed.returncode == 0, resumed.stderr
    assert last(cut).name == last(tmp_path / "straight").name != files[0].name
    want, got = load_file(last(tmp_path / "straight")), load_file(last(cut))
    assert want.keys() == got.keys()
    assert not any("_orig_mod" in name for name in want)  # as without it
    assert all(torch.equal(want[name], got[name]) for name in want)


@pytest.mark.long
def test_compiled_code_trains_like_the_network(tmp_path: Path) -> None:
    torch.compiler.reset()
    for name, recipe in (("compiled", COMPILED), ("plain", TINY)):
        done = run(tmp_path / name, recipe=recipe)
        assert done.returncode == 0, done.stderr
    want, got = load_file(last(tmp_path / "plain")), load_file(last(tmp_path / "compiled"))
    assert all(torch.allclose(want[name], got[name], atol=1e-4) for name in want)


def test_without_a_compiler_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"--compile true needs a C\+\+ compiler, such as g\+\+ on cpu"):
        compiling.check_compiler(torch.device("cpu"))
    monkeypatch.setattr(compiling, "has_triton", lambda: False)
    with pytest.raises(UserError, match="needs the package triton on cuda"):
        compiling.check_compiler(torch.device("cuda"))
