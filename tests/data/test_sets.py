from __future__ import annotations

import hashlib
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from epitomic.data import Split, download, hold_out, load_set, sets
from epitomic.data.sets import CifarSource, IdxSource
from epitomic.errors import UserError
from epitomic.files import write_atomically


def test_idx(idx_source: IdxSource, tmp_path: Path) -> None:
    train, test = idx_source.load(tmp_path)
    assert train.images.shape == (12, 1, 28, 28)
    assert test.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert train.images.dtype == torch.uint8
    assert train.labels.dtype == torch.int64


def test_cifar_layouts_agree(cifar_source: CifarSource, tmp_path: Path) -> None:
    train, test = cifar_source.load(tmp_path)
    assert train.images.shape == (20, 3, 32, 32)
    binary = tmp_path / "cifar-10-batches-bin"
    kept = binary.rename(tmp_path / "kept")
    for protocol in (2, 4):
        pickle_batches(kept, tmp_path / "cifar-10-batches-py", protocol)
        again, test_again = cifar_source.load(tmp_path)
        binary.mkdir(exist_ok=True)  # as a download that failed leaves it
        assert torch.equal(again.images, train.images)
        assert torch.equal(again.labels, train.labels)
        assert torch.equal(test_again.images, test.images)


def pickle_batches(binary: Path, folder: Path, protocol: int) -> None:
    folder.mkdir(exist_ok=True)
    for path in binary.glob("*.bin"):
        records = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 3073)
        batch: dict[Any, Any] = {
            b"labels": records[:, 0].tolist(),
            b"data": records[:, 1:].copy(),
            b"batch_label": b"x",
        }
        (folder / path.stem).write_bytes(pickle.dumps(batch, protocol=protocol))


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
    download._extract(tmp_path / "x.tar.gz", target, ["a.bin", "b.bin"])
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

    monkeypatch.setattr(download, "write_atomically", write_after_the_other)
    download._extract(archive, target, ["a.bin"])
    assert (target / "a.bin").read_bytes() == b"a"
    download._extract(archive, target, ["a.bin"])
    with pytest.raises(UserError, match="cannot unpack"):
        download._extract(archive, target, ["a.bin", "b.bin"])


def test_hold_out_is_stratified_fixed_and_disjoint() -> None:
    labels = torch.arange(1000) % 10
    split = Split(torch.arange(1000).reshape(-1, 1, 1, 1), labels)
    rest, held = hold_out(split, 100)
    assert torch.bincount(held.labels).tolist() == [10] * 10
    assert sorted([*rest.images.flatten().tolist(), *held.images.flatten().tolist()]) == list(range(1000))
    assert torch.equal(hold_out(split, 100)[1].images, held.images)
    for count in (0, 1000):
        with pytest.raises(UserError, match="validation set"):
            hold_out(split, count)


def test_digits() -> None:
    digits = load_set("digits")
    assert (len(digits.train), len(digits.test)) == (1437, 360)
    assert digits.train.images.shape[1:] == (1, 8, 8)
    assert digits.train.images.max() == 255


def test_unknown_set() -> None:
    with pytest.raises(UserError, match="did you mean 'cifar10'"):
        load_set("cifar100")


@pytest.mark.parametrize(("name", "counts"), [("mnist", (60000, 10000)), ("cifar10", (50000, 10000))])
def test_the_real_thing(name: str, counts: tuple[int, int]) -> None:
    root = os.environ.get(sets.DATA_VARIABLE)
    folder = {"mnist": "MNIST/raw", "cifar10": "cifar-10-batches-bin"}[name]
    if not root or not Path(root, folder).is_dir():
        pytest.skip(f"no {folder} under {sets.DATA_VARIABLE}")
    images = load_set(name)
    assert (len(images.train), len(images.test)) == counts
