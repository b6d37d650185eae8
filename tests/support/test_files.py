from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from epitomic.support.files import read_sealed, write_atomically, write_sealed, write_text
from epitomic.support.tensorfile import save_tensors


def test_two_may_write_the_same_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.json"

    def write(temporary: Path) -> None:
        temporary.write_text("ours")
        write_text(path, "theirs")

    write_atomically(path, write)
    assert path.read_text() == "ours"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_files_are_for_whom_the_umask_lets(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_text(tmp_path / "text", "x")
        save_tensors(tmp_path / "tensors", {"x": torch.ones(1)}, {})
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {mode}


def test_bytes_of_a_name_that_is_not_utf8_survive_json(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jpg")
    write_sealed(tmp_path / "x.json", {name: "bad"})
    assert read_sealed(tmp_path / "x.json") == {name: "bad"}
