"""Any file of a store, changed in any way, gives the same batches, one clear error, or skipped images."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from epitomic.cli import main
from epitomic.data.feed import Part
from epitomic.data.photographs.crops import Photographs
from epitomic.data.photographs.open import open_photographs
from epitomic.data.photographs.prepare import prepare
from epitomic.support.errors import UserError
from tests.fuzzing import VARIANTS, mutate
from tests.photographs import make_folders

FILES = (
    *("index.json", "statistics.json", "train/table.safetensors", "val/table.safetensors"),
    *("train/shard-00000.arrow", "val/shard-00000.arrow"),
)


def look(store: Path) -> tuple[list[torch.Tensor], int]:
    """Returns everything that a training takes from a store, and the number of images that were skipped."""
    feed = open_photographs("photographs", store, Photographs(crop=20), batch_size=12, seed=0, workers=0)
    pairs = [*feed.stream(0, 0, Part()), *feed.validation(Part())]
    return [tensor for pair in pairs for tensor in pair], len(feed.bad)


@VARIANTS
def test_nothing_crashes_and_nothing_is_believed(variants: int, store: Path, tmp_path: Path) -> None:
    prepare(make_folders(tmp_path / "in", train=9, val=3), tmp_path / "other", size=24, workers=1)
    copy, rng = tmp_path / "store", np.random.default_rng(3)
    shutil.copytree(store, copy)
    expected, _ = look(copy)
    outcomes = {"the same": 0, "refused": 0, "skipped": 0}
    for variant in range(variants):
        path = copy / FILES[variant % len(FILES)]
        raw = path.read_bytes()
        changed = (tmp_path / "other" / FILES[variant % len(FILES)]).read_bytes()  # another store's file
        if variant >= len(FILES):
            changed = mutate(raw, rng)
        path.write_bytes(changed)
        try:
            found, skipped = look(copy)
            same = len(found) == len(expected) and all(map(torch.equal, found, expected))
            outcome = "the same" if same else "skipped" if skipped else f"a change of {path.name} went unnoticed"
        except UserError as error:
            # An index of another store is whole in itself, so the error names the table that does not fit it.
            told = str(error)
            named = path.name in told or (path.name == "index.json" and "table.safetensors" in told)
            outcome = "refused" if "\n" not in told and (named or "images cannot be read" in told) else told
        assert outcome in outcomes, outcome
        outcomes[outcome] += 1
        path.write_bytes(raw)
    print(outcomes)
    assert outcomes["refused"] > 0.5 * variants
    assert outcomes["skipped"] > 0


def swap(path: Path, other: Path) -> None:
    shutil.copy(other, path)


def change_one_byte(path: Path, other: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 3] ^= 1
    path.write_bytes(raw)


def make_a_folder(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "cut": lambda path, _: os.truncate(path, path.stat().st_size * 2 // 3),
    "empty": lambda path, _: path.write_bytes(b""),
    "extended": lambda path, _: path.write_bytes(path.read_bytes() + b"more"),
    "swapped": swap,
    "one byte": change_one_byte,
    "missing": lambda path, _: path.unlink(),
    "a folder": make_a_folder,
}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of other images."""
    folder = tmp_path_factory.mktemp("other")
    prepare(make_folders(folder / "in", train=9, val=3), folder / "store", size=24, workers=1)
    return folder / "store"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", FILES)
def test_training_ends_with_one_line_that_names_the_file(
    file: str, kind: str, store: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    KINDS[kind](copy / file, other / file)
    words = ["train", "imagenet", "--data-dir", str(copy), "--model", "epitomic_small", "--crop", "20", "--epochs", "1"]
    status = main([*words, "--batch-size", "12", "--workers", "0", "--out", str(tmp_path / "run")])
    error = capsys.readouterr().err
    if file.endswith(".arrow") and kind == "one byte":  # an image of one shard: more than 1 % of so few
        assert "images cannot be read" in error
        assert f"{file} do not match their checksum" in error
    else:
        assert error.count("\n") == 1, error
        named = "is not complete" if file == "index.json" and kind in ("missing", "a folder") else Path(file).name
        # An index of another store is whole in itself: the table beside it does not fit.
        assert ("table.safetensors" if file == "index.json" and kind == "swapped" else named) in error
        assert not (tmp_path / "run").exists()
    assert status == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", ["plan.json", "records/train/shard-00000.json", "records/val/shard-00000.safetensors"])
def test_a_damaged_note_of_prepare_is_named_or_made_again(
    file: str,
    kind: str,
    folders: Path,
    store: Path,
    other: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    KINDS[kind](copy / file, other / file)
    expected = {path: (store / path).read_bytes() for path in FILES}
    status = main(["prepare", str(folders), str(copy), "--size", "24", "--workers", "1", "--quiet"])
    error = capsys.readouterr().err
    assert status == (2 if error else 0)
    assert error.count("\n") == (file == "plan.json" or kind == "a folder")
    assert str(copy) in error or not error
    assert {path: (copy / path).read_bytes() for path in FILES} == expected


def test_the_list_of_bad_images_is_for_people_alone(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    expected, _ = look(copy)
    (copy / "bad_images.csv").write_bytes(b"\xff\0")
    assert all(map(torch.equal, look(copy)[0], expected))
