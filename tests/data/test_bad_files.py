"""Damaged, foreign and malicious data files: one clear line that names the file, and nothing run."""

from __future__ import annotations

import contextlib
import gzip
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from epitomic.data.cifar import read_binary, read_pickled
from epitomic.data.sets import CifarSource, IdxSource
from epitomic.data.unpickle import UnpickleError, unpickle
from epitomic.errors import UserError
from tests.data.conftest import idx

VARIANTS = pytest.mark.parametrize("variants", [40, pytest.param(1000, marks=pytest.mark.long)])


def bad_crc(raw: bytes) -> bytes:
    return raw[:-8] + bytes(b ^ 255 for b in raw[-8:-4]) + raw[-4:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[: len(raw) // 2], "damaged|truncated"),
        (lambda raw: b"", "truncated"),
        (lambda raw: b"not gzip", "no gzip"),
        (bad_crc, "damaged"),
        (lambda raw: gzip.compress(b"\0\0\x08\x04" + gzip.decompress(raw)[4:]), "magic number"),
        (lambda raw: gzip.compress(gzip.decompress(raw)[:-1]), "truncated"),
        (lambda raw: gzip.compress(gzip.decompress(raw) + b"x"), "too long"),
        (lambda raw: gzip.compress(idx(np.arange(5))), "5 labels for the 12 images"),
        (lambda raw: gzip.compress(idx(np.full(12, 10))), "label 10 of image 0"),
        (lambda raw: gzip.compress(b"\0\0\x08\x01" + b"\xff" * 4), "more than any set|truncated"),
        (lambda raw: gzip.compress(idx(np.full(12, 3))), "SHA-256"),
    ],
)
def test_idx(damage: Callable[[bytes], bytes], message: str, idx_source: IdxSource, tmp_path: Path) -> None:
    path = tmp_path / "MNIST/raw/train-labels-idx1-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=message) as caught:
        idx_source.load(tmp_path)
    assert str(path) in str(caught.value)


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
def test_cifar(damage: Callable[[bytes], bytes], message: str, cifar_source: CifarSource, tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-batches-bin/data_batch_3.bin"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=message) as caught:
        cifar_source.load(tmp_path)
    assert str(path) in str(caught.value)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_batch_runs_nothing(protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({b"data": Evil(), b"labels": []}, protocol=protocol))
    with pytest.raises(UserError, match=r"data_batch_1 is no CIFAR-10 batch: it asks for .*system"):
        read_pickled(path)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"cos\nsystem\n(S'touch executed'\ntR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"(ibuiltins\nprint\n.",
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # NEWOBJ
        b"cnumpy\nndarray\n(tR.",
        b"P1\n.",
        b"",
        b".",
        b"I1\n",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R.",
    ],
)
def test_pickles_that_are_not_plain_data(raw: bytes) -> None:
    with pytest.raises(UnpickleError):
        unpickle(raw)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_comes_out_as_it_went_in(protocol: int) -> None:
    value = {"a": [1, -2, 1 << 70, 2.5, None, True], "b": (1, (2, 3), "text", b"bytes"), "c": {}, "d": [], "e": ()}
    assert unpickle(pickle.dumps(value, protocol=min(protocol, pickle.HIGHEST_PROTOCOL))) == value


def test_what_is_held_many_times_over_is_looked_at_once() -> None:
    value: dict[str, object] = {}
    for _ in range(60):  # 2 ** 60 ways to the innermost
        value = {"a": value, "b": value}
    assert unpickle(pickle.dumps(value)).keys() == {"a", "b"}


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_bytes(order: str) -> None:
    array = np.asarray(np.arange(12, dtype=np.uint8).reshape(3, 4), order=order)  # type: ignore[call-overload]
    assert unpickle(pickle.dumps({"x": array}, protocol=2))["x"].tolist() == array.tolist()
    with pytest.raises(UnpickleError, match="bytes"):
        unpickle(pickle.dumps({"x": array.astype(np.float32)}, protocol=2))


def test_a_batch_as_python_2_wrote_it() -> None:
    raw = bytes(range(12))
    pickled = (
        b"\x80\x02}q\x00(U\x0bbatch_labelq\x01U\x01xU\x06labelsq\x02]q\x03(K\x01K\x02eU\x04dataq\x04"
        b"cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\nndarray\nq\x06K\x00\x85q\x07U\x01bq\x08\x87q\x09Rq\x0a"
        b"(K\x01K\x02K\x06\x86q\x0bcnumpy\ndtype\nq\x0cU\x02u1q\x0dK\x00K\x01\x87q\x0eRq\x0f"
        b"(K\x03U\x01|q\x10NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x0c" + raw + b"tbu."
    )
    batch = unpickle(pickled)
    assert batch["labels"] == [1, 2]
    assert batch["data"].tolist() == [list(raw[:6]), list(raw[6:])]


def mutate(raw: bytes, rng: np.random.Generator) -> bytes:
    """One of: some bytes changed, a cut, an insertion, a piece twice, a piece zeroed."""
    data = bytearray(raw)
    kind, at = rng.integers(5), int(rng.integers(len(data)))
    length = int(rng.integers(1, 40))
    if kind == 0:
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at:at] = rng.bytes(length)
    elif kind == 3:
        data[at:at] = data[at : at + length]
    else:
        data[at : at + length] = bytes(min(length, len(data) - at))
    return bytes(data)


@VARIANTS
def test_fuzzed_sets_are_refused(
    variants: int, idx_source: IdxSource, cifar_source: CifarSource, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    files = [*(tmp_path / "MNIST/raw").iterdir(), *(tmp_path / "cifar-10-batches-bin").iterdir()]
    for number in range(variants):
        path = files[number % len(files)]
        good = path.read_bytes()
        bad = mutate(good, rng)
        path.write_bytes(bad)
        source = idx_source if path.suffix == ".gz" else cifar_source
        if bad == good:  # a mutation may be none
            source.load(tmp_path)
            continue
        with pytest.raises(UserError) as caught:
            source.load(tmp_path)
        assert "\n" not in str(caught.value)
        path.write_bytes(good)


@VARIANTS
def test_fuzzed_pickles_raise_one_kind_of_error(variants: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    batch = {b"labels": [1, 2], b"data": rng.integers(0, 256, (2, 3072), dtype=np.uint8), b"batch_label": b"one"}
    raw = pickle.dumps(batch, protocol=2)
    head, tail = raw[:400], raw[-200:]  # where the structure is
    path = tmp_path / "data_batch_1"
    for number in range(variants):
        where = number % 3
        bad = (
            mutate(head, rng) + raw[400:]
            if where == 0
            else raw[:-200] + mutate(tail, rng)
            if where == 1
            else mutate(raw, rng)
        )
        path.write_bytes(bad)
        with contextlib.suppress(UserError):
            assert read_pickled(path).shape[1] == 3073


def test_missing_file_is_named(tmp_path: Path) -> None:
    for read in (read_binary, read_pickled):
        with pytest.raises(UserError, match="not there"):
            read(tmp_path / "nothing")
