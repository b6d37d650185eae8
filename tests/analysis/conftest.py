"""Fixtures of these tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from epitomic.models import create_model, save_pretrained
from tests.photographs import make_folders
from tests.runs import folder, make_run, one_thread  # noqa: F401


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    torch.manual_seed(5)  # not the one that the untrained network has
    model = create_model("maxpool_small", num_classes=2, in_channels=3, image_size=16, width=0.25)
    extra = {"standardize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2]}}
    save_pretrained(model, tmp_path / "run", **extra)
    make_folders(tmp_path / "in", train=6, val=1)
    return tmp_path
