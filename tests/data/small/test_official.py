"""Missing files are downloaded, checked and unpacked, or the error says which files to put where."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from epitomic.data.small import official
from epitomic.data.small.idx import IdxSource
from epitomic.support.errors import UserError
from epitomic.support.files import write_atomically


def test_missing_files_say_what_to_put_where(idx_source: IdxSource, tmp_path: Path) -> None:
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match=r"MNIST/raw has no t10k-labels-idx1-ubyte\.gz.*--data-dir") as caught:
        idx_source.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_download_lands_in_place_and_is_checked(idx_source: IdxSource, tmp_path: Path) -> None:
    name = "t10k-labels-idx1-ubyte.gz"
    good = (tmp_path / "MNIST/raw" / name).read_bytes()
    (tmp_path / "MNIST/raw" / name).unlink()

    def retrieve(contents: bytes) -> Any:
        def fake(url: str, known_hash: str, fname: str, path: Path, downloader: object) -> None:
            if hashlib.sha256(contents).hexdigest() != known_hash.removeprefix("sha256:"):
                raise ValueError("hash does not match")
            Path(path, fname).write_bytes(contents)

        return fake

    with mock.patch("pooch.retrieve", retrieve(b"other")), pytest.raises(UserError, match="hash does not match"):
        idx_source.load(tmp_path)
    with mock.patch("pooch.retrieve", retrieve(good)):
        assert len(idx_source.load(tmp_path)[1]) == 6


def test_an_archive_gives_only_the_files_asked_for(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.bin").write_bytes(b"a")
    (inside / "evil").write_bytes(b"e")
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
        tar.add(inside / "a.bin", "folder/a.bin")
        tar.add(inside / "evil", "../evil")
        link = tarfile.TarInfo("folder/b.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    target = tmp_path / "target"
    target.mkdir()
    official._extract(tmp_path / "x.tar.gz", target, ["a.bin", "b.bin"])
    assert [p.name for p in target.iterdir()] == ["a.bin"]
    assert not (tmp_path / "evil").exists()


def test_an_archive_that_another_process_unpacks_and_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, target = tmp_path / "x.tar", tmp_path / "target"
    (tmp_path / "a.bin").write_bytes(b"a")
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "a.bin", "a.bin")

    def write_after_the_other(path: Path, write: Any) -> None:
        archive.unlink()
        write_atomically(path, write)

    monkeypatch.setattr(official, "write_atomically", write_after_the_other)
    official._extract(archive, target, ["a.bin"])
    assert (target / "a.bin").read_bytes() == b"a"
    official._extract(archive, target, ["a.bin"])
    with pytest.raises(UserError, match="cannot unpack"):
        official._extract(archive, target, ["a.bin", "b.bin"])
