"""What belongs to several processes and to GPUs, as far as a CPU can tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from epitomic.support.devices import allow_tf32
from epitomic.support.errors import UserError
from epitomic.training.parallel import create_fabric, normalize_together
from epitomic.training.recipes import get_recipe
from epitomic.training.setup import Settings
from tests.training.conftest import run

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _flags() -> Iterator[None]:
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn


@pytest.mark.parametrize(
    ("wanted", "device", "processes", "together"),
    [
        ("auto", CUDA, 2, True),
        ("on", CUDA, 2, True),
        ("off", CUDA, 2, False),
        ("auto", CUDA, 1, False),
        ("auto", CPU, 2, False),
    ],
)
def test_batches_are_normalised_together(wanted: str, device: torch.device, processes: int, together: bool) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    names = list(model.state_dict())
    changed = normalize_together(model, wanted, device, processes)
    assert isinstance(changed[1], nn.SyncBatchNorm) == together  # type: ignore[index]
    assert list(changed.state_dict()) == names  # checkpoints fit either way


def test_on_a_cpu_that_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--sync-batch-norm on needs CUDA or ROCm, and this run computes on cpu"):
        normalize_together(nn.BatchNorm2d(1), "on", CPU, 2)
    assert "--sync-batch-norm on" in run(tmp_path / "run", "--accelerator", "cpu", "--sync-batch-norm", "on").stderr


def test_tf32_is_allowed_by_its_name_only() -> None:
    for precision, allowed in (("tf32", True), ("32-true", False), ("bf16-mixed", False)):
        allow_tf32(CUDA, precision)
        flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        assert flags == (allowed, allowed)
        allow_tf32(CPU, "tf32")
        assert flags == (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)


def test_tf32_changes_nothing_on_a_cpu(straight: Path, tmp_path: Path) -> None:
    recipe = replace(get_recipe("digits"), precision="tf32")
    assert create_fabric(recipe, Settings(accelerator="cpu"))._precision.precision == "32-true"
    assert run(tmp_path / "run", "--quiet", "--accelerator", "cpu", "--precision", "tf32").returncode == 0
    for name in ("model.safetensors", "metrics.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (straight / name).read_bytes()
