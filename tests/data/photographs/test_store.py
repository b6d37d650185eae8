"""What goes into a store comes out; a damaged store is named."""

from __future__ import annotations

import io
import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epitomic.data.photographs.folders import FolderImages, list_images
from epitomic.data.photographs.shards import _write_shard
from epitomic.data.photographs.store import Index, Shard, StoreImages
from epitomic.support.errors import UserError
from epitomic.support.images import BadImageError
from tests.data.photographs.conftest import SIZE
from tests.photographs import CLASSES, picture


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
    row = {
        "image": {"bytes": file.getvalue(), "path": None},
        "label": 0,
        "name": "a/x",
        "crc": zlib.crc32(file.getvalue()),
    }
    (tmp_path / "train").mkdir()
    path = tmp_path / "train/shard-00000.arrow"
    _write_shard(path, ("a",), iter([row]))
    index = Index(("a",), 32, {"train": (Shard("train/shard-00000.arrow", 1, path.stat().st_size),)})
    (tmp_path / "index.json").write_text(json.dumps(index.to_json()))
    assert np.array_equal(np.asarray(StoreImages(tmp_path, "train").read(0)), np.asarray(picture(1)))


def test_anyone_can_open_the_shards(store: Path) -> None:
    import datasets

    shard = datasets.Dataset.from_file(str(store / "train/shard-00000.arrow"))
    assert shard.features["label"].names == list(CLASSES)
    assert shard[0]["image"].size[1] >= SIZE


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda s: (s / "index.json").unlink(), "is not complete"),
        (lambda s: (s / "index.json").write_text("{}"), "format None"),
        (lambda s: (s / "index.json").write_text('{"format": 1, "splits": 3}'), "damaged"),
        (lambda s: os.truncate(s / "train/shard-00000.arrow", 2000), "truncated or altered"),
        (lambda s: (s / "train/shard-00000.arrow").unlink(), "missing"),
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
    good, refused = StoreImages(store, "train"), 0
    start = bytes(raw).find(good.table[5]["image"][0].as_py()["bytes"])
    raw[start + 300] ^= 0xFF
    path.write_bytes(raw)
    damaged = StoreImages(copy, "train")
    for index in range(len(good)):
        try:
            assert np.array_equal(np.asarray(damaged.read(index)), np.asarray(good.read(index)))
        except BadImageError as error:
            refused += "checksum" in str(error)
    assert refused == 1


def test_a_split_that_is_not_there(store: Path) -> None:
    with pytest.raises(UserError, match="no images of 'test': it has train, val"):
        StoreImages(store, "test")
