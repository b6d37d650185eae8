"""Class folders and the store that `epitomic prepare` makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from epitomic.cli import main
from tests.photographs import make_folders

SIZE = 24


@pytest.fixture(scope="package")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folders(tmp_path_factory.mktemp("folders"))


@pytest.fixture(scope="package")
def store(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "store"
    assert main(["prepare", str(folders), str(path), "--size", str(SIZE), "--workers", "2", "--quiet"]) == 0
    return path
