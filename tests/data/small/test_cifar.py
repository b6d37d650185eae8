"""CIFAR-10's binary layout, and damaged files of it; the pickled layout is refused unread."""

from __future__ import annotations

import builtins
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from epitomic.data.small.cifar import CifarSource, read_binary
from epitomic.support.errors import UserError


def test_cifar(cifar_source: CifarSource, tmp_path: Path) -> None:
    train, test = cifar_source.load(tmp_path)
    assert train.images.shape == (20, 3, 32, 32)
    assert test.labels.tolist() == [0, 1, 2, 3]
    records = np.frombuffer((tmp_path / "cifar-10-batches-bin/test_batch.bin").read_bytes(), np.uint8)
    assert np.array_equal(test.images[1].flatten().numpy(), records[3074:6146])
    (tmp_path / "cifar-10-batches-py").mkdir()  # does not matter beside the binary layout
    assert torch.equal(cifar_source.load(tmp_path)[0].images, train.images)


@pytest.mark.parametrize("partial", [False, True])
def test_the_pickled_layout_is_refused_unread(
    partial: bool, cifar_source: CifarSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary, pickled = tmp_path / "cifar-10-batches-bin", tmp_path / "cifar-10-batches-py"
    if partial:  # as a download that failed leaves it
        (binary / "data_batch_2.bin").unlink()
    else:
        shutil.rmtree(binary)
    pickled.mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (pickled / name).write_bytes(b"cbuiltins\nexit\n(tR.")

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError(f"opened {args[0]}")

    for module in (io, builtins):
        monkeypatch.setattr(module, "open", refuse)
    with pytest.raises(UserError, match=r"only the binary layout is read: download http\S+cifar\.tar\.gz") as caught:
        cifar_source.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:-1], "whole records"),
        (lambda raw: b"", "whole records"),
        (lambda raw: b"\x0a" + raw[1:], "label 10 of image 0"),
        (lambda raw: raw[:3073], "SHA-256"),
        (lambda raw: raw[:100] + bytes([raw[100] ^ 1]) + raw[101:], "SHA-256"),
    ],
)
def test_damaged_files_are_named(
    damage: Callable[[bytes], bytes], message: str, cifar_source: CifarSource, tmp_path: Path
) -> None:
    path = tmp_path / "cifar-10-batches-bin/data_batch_3.bin"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=message) as caught:
        cifar_source.load(tmp_path)
    assert str(path) in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*nothing: No such file"):
        read_binary(tmp_path / "nothing")
