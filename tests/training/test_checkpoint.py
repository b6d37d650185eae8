from __future__ import annotations

import errno
import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from epitomic.models import create_model
from epitomic.support import tensorfile
from epitomic.support.errors import UserError
from epitomic.support.tensorfile import load_tensors, save_tensors
from epitomic.training import checkpoint
from epitomic.training.checkpoint import Checkpoints
from epitomic.training.optimizer import create_optimizer
from epitomic.training.recipe import Optimizer
from tests.fuzzing import VARIANTS, mutate
from tests.training.conftest import run

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(3), "c": torch.empty(0, 2)}


def save(folder: Path, *steps: int) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(step, {"a": torch.full((4,), float(step))}, {"step": step})
    return checkpoints


def test_round_trip(tmp_path: Path) -> None:
    state = {"x": [1, 2.5, None], "y": {"z": "ä"}, "tenth": 0.1}
    save_tensors(tmp_path / "x", TENSORS, state)
    tensors, again = load_tensors(tmp_path / "x")
    assert again == state
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[k], TENSORS[k]) and tensors[k].dtype == TENSORS[k].dtype for k in TENSORS)


def test_the_two_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 5, 10, 200)
    assert [p.name for p in checkpoints.files()] == ["step-0000000010.safetensors", "step-0000000200.safetensors"]
    found = checkpoints.load()
    assert found is not None
    assert found[2]["step"] == 200


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-1], lambda raw: b"", lambda raw: raw[:-2] + b"xy", lambda raw: raw + b"x"]
)
def test_a_damaged_newest_falls_back(damage: Any, tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 1, 2)
    newest = checkpoints.files()[-1]
    newest.write_bytes(damage(newest.read_bytes()))
    with pytest.warns(UserWarning, match=r"step-0000000002.*damaged.*trying the one before"):
        found = checkpoints.load()
    assert found is not None
    path, tensors, state = found
    assert state["step"] == 1
    assert tensors["a"].tolist() == [1.0] * 4
    checkpoints.set_aside_after(path)
    assert checkpoints.files() == [path]
    assert (tmp_path / "step-0000000002.safetensors.damaged").exists()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_all_damaged_is_an_error_and_overwrites_nothing(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 1, 2)
    for path in checkpoints.files():
        path.write_bytes(b"junk")
    with pytest.raises(UserError, match=r"no checkpoint in .* is intact"):
        checkpoints.load()
    assert [p.read_bytes() for p in checkpoints.files()] == [b"junk", b"junk"]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_malicious_pickle_runs_nothing(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoints = save(tmp_path, 1)
    path = checkpoints.files()[0]
    if how == "pickle":
        path.write_bytes(pickle.dumps(Evil()))
    else:
        torch.save(Evil(), path)
    with pytest.raises(UserError, match="damaged or not a safetensors file"):
        checkpoints.load()
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("where", ["write", "sync", "rename"])
def test_a_full_disk_loses_no_earlier_checkpoint(where: str, tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 1, 2)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    targets = {"write": "safetensors.torch.save_file", "sync": "os.fsync", "rename": "os.replace"}
    with (
        mock.patch(targets[where], side_effect=full),
        pytest.raises(UserError, match=r"No space left.*last good checkpoint is .*step-0000000002"),
    ):
        checkpoints.save(3, {"a": torch.ones(2)}, {})
    assert len(list(tmp_path.iterdir())) == 2
    assert checkpoints.load() is not None


def test_leftovers_of_a_crash_are_cleared(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 1)
    (tmp_path / "step-0000000002.safetensors.tmp").write_bytes(b"half")
    found = checkpoints.load()
    assert found is not None
    assert found[2]["step"] == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_another_format_is_refused(tmp_path: Path) -> None:
    save_tensors(tmp_path / "step-0000000001.safetensors", TENSORS, {"format": 99})
    with pytest.raises(UserError, match="format 99"):
        Checkpoints(tmp_path).load()


def test_tensors_of_another_network_are_refused(tmp_path: Path) -> None:
    small, large = (create_model("epitomic_small", image_size=8, width=width) for width in (0.25, 0.5))
    optimizers = [create_optimizer(model, Optimizer()) for model in (small, large)]
    tensors = checkpoint.collect(small, optimizers[0], None)
    with pytest.raises(UserError, match=r"x is of another network: its .* has shape"):
        checkpoint.restore(tensors, large, optimizers[1], None, Path("x"))
    tensors["optimizer.0.momentum_buffer"] = torch.zeros(3)
    with pytest.raises(UserError, match="fits no parameter"):
        checkpoint.restore(tensors, small, optimizers[0], None, Path("x"))


@VARIANTS
def test_fuzzed_files_load_right_or_not_at_all(variants: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "x"
    save_tensors(path, TENSORS, {"step": 3})
    good, refused = path.read_bytes(), 0
    for _ in range(variants):
        path.write_bytes(mutate(good, rng))
        try:
            tensors, state = load_tensors(path)
        except tensorfile.DamagedFileError as error:
            refused += str(path) in str(error)
            continue
        assert state == {"step": 3}
        assert all(torch.equal(tensors[k], TENSORS[k]) for k in TENSORS)
    assert refused > 0.8 * variants


def set_entry(*path: Any, to: Any) -> Any:
    def change(tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        place: Any = state
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


def drop_entry(*path: Any) -> Any:
    def change(tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        place: Any = state
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


def drop_tensors(prefix: str) -> Any:
    def change(tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        for name in [name for name in tensors if name.startswith(prefix)]:
            del tensors[name]

    return change


def whole_weight(tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
    tensors["model.out.weight"] = tensors["model.out.weight"].long()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_tensors("optimizer."), "no tensor 'optimizer.0.momentum_buffer'"),
        (drop_tensors("optimizer.1."), "no tensor 'optimizer.1.momentum_buffer'"),
        (drop_tensors("model.out"), "no tensor 'out.bias'"),
        (whole_weight, "holds int64"),
        (set_entry("state", "batch", to=10**6), "batch 1000000 of a run of 3 epochs of 39 batches"),
        (set_entry("state", "epoch", to=9), "at epoch 9"),
        (set_entry("state", "batch", to=-1), "'batch' must be a whole number"),
        (set_entry("state", "batch", to=1.5), "'batch' must be a whole number"),
        (set_entry("state", "rows", to=[]), "it has 0 rows of metrics for 3 epochs"),
        (set_entry("state", "rows", 0, to=[0, 1]), "row 0 has 2 values"),
        (set_entry("state", "rows", 1, 4, to="x"), "row 1: its train_error cannot be 'x'"),
        (set_entry("state", "rows", 1, 0, to=7), "row 1: its epoch must be 1"),
        (set_entry("state", "rows", to={}), "'rows' must be lists"),
        (set_entry("state", "best_epoch", to=3), "best epoch cannot be 3 of 3"),
        (set_entry("state", "best_error", to=None), "best epoch cannot be"),
        (set_entry("state", "seconds", to=None), "'seconds' must be a number of seconds"),
        (set_entry("state", "loss", to=float("inf")), "'loss' must be a finite number"),
        (set_entry("state", "surprise", to=1), "its state must have epoch, batch"),
        (drop_entry("state", "images"), "its state must have epoch, batch"),
        (drop_entry("state"), "its state must have epoch, batch"),
        (set_entry("state", to=[]), "its state must have epoch, batch"),
        (drop_entry("rate"), "'rate' must be an object, got None"),
        (set_entry("rate", "drops", to="none"), "'drops' must be a whole number"),
        (drop_entry("rate", "best"), "rate has no entry 'best'"),
        (drop_entry("recipe"), "does not hold settings"),
        (set_entry("recipe", "epochs", to="x"), "epochs"),
        (drop_entry("images"), "made with other images"),
    ],
)
def test_unsound_checkpoints_are_refused_in_one_line(change: Any, message: str, straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(straight, out)
    (out / "results.json").unlink()
    newest = Checkpoints(out / "checkpoints").files()[-1]
    tensors, state = load_tensors(newest)
    change(tensors, state)
    save_tensors(newest, tensors, state)
    finished = run(out, "--resume")
    assert finished.returncode == 2
    told = finished.stderr.splitlines()
    assert len(told) == 1, finished.stderr
    assert re.search(message, told[0]), told
    assert newest.name in told[0]


@pytest.mark.parametrize("text", ["", "[]", "5", "{", '{"a": ' * 100_000])
def test_a_state_that_is_no_object(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    metadata = {tensorfile.KEY: f"{tensorfile._digest(TENSORS, text)} {text}"}
    save_file(TENSORS, path, metadata)
    with pytest.raises(tensorfile.DamagedFileError, match=r"x is damaged: its state is"):
        load_tensors(path)
