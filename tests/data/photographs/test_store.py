"""What goes into a store comes out; a damaged store is named."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from epitomic.data.photographs.arrow import locate, write_shard
from epitomic.data.photographs.folders import FolderImages, list_images
from epitomic.data.photographs.prepare import prepare
from epitomic.data.photographs.store import Checked, Index, Shard, Split, StoreImages
from epitomic.support.errors import UserError
from epitomic.support.files import write_sealed
from epitomic.support.images import BadImageError
from tests.data.photographs.conftest import SIZE
from tests.photographs import CLASSES, make_folders, picture


def test_the_store_has_the_images_of_the_folders(folders: Path, store: Path) -> None:
    for split in ("train", "val"):
        stored, plain = StoreImages(store, split), FolderImages(list_images(folders / split), SIZE)
        assert stored.classes == plain.classes == CLASSES
        assert stored.labels.tolist() == plain.labels.tolist()
        assert len(stored) == len(plain) > 0
        for index in range(len(plain)):
            ours, theirs = (np.asarray(source.read(index)).astype(float) for source in (stored, plain))
            assert ours.shape == theirs.shape
            assert min(ours.shape[:2]) == SIZE
            assert np.abs(ours - theirs).mean() < 6  # JPEG
            assert stored.name(index).endswith(plain.listing.names[index])


def test_an_existing_store_keeps_what_it_holds(tmp_path: Path) -> None:
    """Stores of earlier versions may hold images with orientation tags, which training never followed."""
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    picture(1).save(file, "PNG", exif=exif)
    (tmp_path / "train").mkdir()
    path = tmp_path / "train/shard-00000.arrow"
    write_shard(path, ("a",), iter([(file.getvalue(), 0, "a/x")]))
    table = Checked.write(tmp_path, "train/table.safetensors", locate(path).to_bytes())
    shard = Shard("train/shard-00000.arrow", 1, path.stat().st_size)
    Index(("a",), 32, {"train": Split(table, (shard,))}).write(tmp_path)
    assert np.array_equal(np.asarray(StoreImages(tmp_path, "train").read(0)), np.asarray(picture(1)))


def test_anyone_can_open_the_shards(store: Path) -> None:
    import datasets

    shard = datasets.Dataset.from_file(str(store / "train/shard-00000.arrow"))
    assert shard.features["label"].names == list(CLASSES)
    assert shard[0]["image"].size[1] >= SIZE


def reseal(store: Path, **changes: Any) -> None:
    """Changes the index as someone who knows how to compute its SHA-256."""
    values = json.loads((store / "index.json").read_text())
    write_sealed(store / "index.json", {**{k: v for k, v in values.items() if k != "sha256"}, **changes})


def moved(store: Path, file: str) -> None:
    splits = json.loads((store / "index.json").read_text())["splits"]
    splits["train"]["shards"][0]["file"] = file
    reseal(store, splits=splits)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda s: (s / "index.json").unlink(), "is not complete"),
        (lambda s: (s / "index.json").write_text("{}"), "format None"),
        (lambda s: (s / "index.json").write_text('{"format": 1, "splits": 3}'), "prepare .*store --upgrade"),
        (lambda s: (s / "index.json").write_text('{"format": 2, "splits": 3}'), "index.json .* do not match"),
        (lambda s: reseal(s, splits=3), "index.json is damaged"),
        (lambda s: reseal(s, size=float("inf")), "index.json is damaged"),
        (lambda s: moved(s, "../outside.arrow"), "'../outside.arrow' is not a path inside the store"),
        (lambda s: moved(s, "/etc/passwd"), "'/etc/passwd' is not a path inside the store"),
        (lambda s: moved(s, "train/a\0b"), "is not a path inside the store"),
        (lambda s: moved(s, ""), "is not a path inside the store"),
        (lambda s: moved(s, "train"), "train is missing"),
        (lambda s: os.truncate(s / "train/shard-00000.arrow", 2000), "truncated or altered"),
        (lambda s: (s / "train/shard-00000.arrow").unlink(), "missing"),
        (lambda s: os.truncate(s / "train/table.safetensors", 2000), "table.safetensors is truncated or altered"),
        (lambda s: (s / "train/table.safetensors").unlink(), "table.safetensors is missing"),
        (lambda s: shutil.copy(s / "val/table.safetensors", s / "train"), "table.safetensors is truncated or altered"),
        (lambda s: reseal(s, classes=["ant", "bee"]), "label 2 of image .* is out of range"),
    ],
)
def test_a_damaged_store_is_named(spoil: Callable[[Path], object], says: str, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    spoil(copy)
    with pytest.raises(UserError, match=says):
        StoreImages(copy, "train")


def test_a_shard_of_the_right_size_with_other_bytes(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    path = copy / "train/shard-00000.arrow"
    raw = bytearray(path.read_bytes())
    good, refused = StoreImages(store, "train"), []
    raw[int(good.table.offset[5]) + 300] ^= 0xFF
    path.write_bytes(raw)
    damaged = StoreImages(copy, "train")
    for index in range(len(good)):
        try:
            assert np.array_equal(np.asarray(damaged.read(index)), np.asarray(good.read(index)))
        except BadImageError as error:
            refused.append(str(error))
    assert refused == ["image 5: its bytes in train/shard-00000.arrow do not match their checksum"]


def test_a_shard_that_shrinks_or_vanishes_while_it_is_read(store: Path, tmp_path: Path) -> None:
    """With a memory map this would be SIGBUS."""
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    images = StoreImages(copy, "train")
    images.read(0)
    os.truncate(copy / "train/shard-00000.arrow", int(images.table.offset[1]) + 10)
    images.read(0)
    for index in (1, 2):
        with pytest.raises(BadImageError, match=f"image {index}: .* do not match their checksum"):
            images.read(index)
    images.close()
    (copy / "train/shard-00000.arrow").unlink()
    with pytest.raises(BadImageError, match=r"image 0: cannot read train/shard-00000.arrow: No such file"):
        images.read(0)


def test_reading_asks_for_the_bytes_of_the_image_alone(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, asked, pread = StoreImages(store, "train"), [], os.pread
    assert not images._open  # opening a store opens no shard

    def watched(file: int, count: int, offset: int) -> bytes:
        asked.append((offset, count))
        return pread(file, count, offset)

    monkeypatch.setattr(os, "pread", watched)
    for index in (3, 2):
        images.read(index)
    assert asked == [(int(images.table.offset[i]), int(images.table.length[i])) for i in (3, 2)]


def test_another_process_gets_no_open_files(store: Path) -> None:
    images = StoreImages(store, "train")
    expected = np.asarray(images.read(1))
    copy = pickle.loads(pickle.dumps(images))
    assert not copy._open
    assert np.array_equal(np.asarray(copy.read(1)), expected)
    assert copy.name(1) == images.name(1)


def test_more_shards_than_files_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(make_folders(tmp_path / "in", train=100, val=1), tmp_path / "out", size=24, workers=1)  # 3 shards
    images = StoreImages(tmp_path / "out", "train")
    expected = [np.asarray(images.read(i)) for i in (0, 150, 299, 1)]
    images.close()
    real = os.open

    def one_at_a_time(*args: Any) -> int:
        if images._open:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*args)

    monkeypatch.setattr(os, "open", one_at_a_time)
    for index, pixels in zip((0, 150, 299, 1), expected, strict=True):
        assert np.array_equal(np.asarray(images.read(index)), pixels)


def test_a_split_that_is_not_there(store: Path) -> None:
    with pytest.raises(UserError, match="no images of 'test': it has train, val"):
        StoreImages(store, "test")
