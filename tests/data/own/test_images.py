"""Any folder, table or data set becomes images with labels and splits."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from epitomic.data.own import facts
from epitomic.data.own.images import Place, open_own, remembered
from epitomic.data.photographs.prepare import prepare
from epitomic.support.errors import UserError
from tests.own_images import make_odd, make_own
from tests.photographs import make_folders, picture


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def open_at(path: Path | str, **columns: str) -> Any:
    return open_own(Place(str(path), **columns))


def count(images: Any) -> int:
    return sum(map(len, images.parts.values()))


def test_every_odd_kind_of_image(tmp_path: Path) -> None:
    expected = make_odd(tmp_path / "odd")
    images = open_at(tmp_path / "odd")
    assert images.classes == tuple(sorted(expected))
    found = {name: images.labels.count(number) for number, name in enumerate(images.classes)}
    broken, wrong = tmp_path / "odd" / "ant" / "broken.jpg", tmp_path / "odd" / "ant" / "in the wrong class.PNG"
    bad = images.blobs.paths.index(str(broken))
    assert bad not in {i for numbers in images.parts.values() for i in numbers}
    found["ant"] -= 1
    assert found == expected
    assert [*images.bad] == [str(broken)]
    assert f"1 image cannot be read and will be left out: {broken}: " in images.notes[0]
    assert images.notes[1].startswith("1 image has copies in different classes, so one label is wrong: ")
    assert str(wrong) in images.notes[1]
    assert "class 'three' has few images" in images.notes[2]
    copies = [
        i
        for i, fact in enumerate(images.facts)
        if fact.sha256 == images.facts[images.blobs.paths.index(str(wrong))].sha256
    ]
    assert len(copies) == 3
    assert sum({*copies} <= {*numbers} for numbers in images.parts.values()) == 1
    assert all({images.classes[images.labels[i]] for i in numbers} == {*expected} for numbers in images.parts.values())
    for split in images.parts:
        source = images.photographs(split, 32)
        kept = remembered(source, 0, quiet=True)
        assert all((kept.pixels(i) == source.pixels(i)).all() for i in range(len(source)))
        assert all(min(source.pixels(i).shape[:2]) == 32 for i in range(len(source)))


def test_facts_are_read_once_and_again_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_own(tmp_path / "own")
    first = open_at(root)
    seen: list[bytes] = []
    look_at = facts.look_at

    def watched(contents: bytes) -> facts.ImageFacts:
        seen.append(contents)
        return look_at(contents)

    monkeypatch.setattr(facts, "look_at", watched)
    assert open_at(root).parts == first.parts
    assert not seen
    picture(123, 0, 99, 99).save(root / "ant" / "000.png")
    open_at(root)
    assert len(seen) == 1
    for path in (tmp_path / "cache").rglob("own/*.json"):
        path.write_text("{")
    open_at(root)
    assert len(seen) == 25


@pytest.mark.parametrize(
    "names", [("train", "val"), ("train", "test"), ("train", "val", "test"), ("Train", "Validation")]
)
def test_splits_of_the_folder_are_kept(names: tuple[str, ...], tmp_path: Path) -> None:
    for number, name in enumerate(names):
        make_own(tmp_path / "own" / name, 12, side=48 + number)
    images = open_at(tmp_path / "own")
    sizes = {split: len(numbers) for split, numbers in images.parts.items()}
    assert all(sizes.values())
    assert sum(sizes.values()) == 24 * len(names)
    for name in names[1:]:
        assert sizes["test" if name == "test" else "val"] == 24


def test_a_class_may_be_called_test(tmp_path: Path) -> None:
    make_own(tmp_path / "own", classes=("test", "other"))
    assert open_at(tmp_path / "own").classes == ("other", "test")


def test_a_store(tmp_path: Path) -> None:
    make_folders(tmp_path / "in", train=12, val=4)
    prepare(tmp_path / "in", tmp_path / "store", size=24, workers=1, quiet=True)
    images = open_at(tmp_path / "store")
    assert len(images.parts["val"]) == 12
    assert count(images) == 48
    assert images.photographs("test", 24).pixels(0).shape[2] == 3


def write_csv(path: Path, rows: list[tuple[str, ...]], mark: str = ",") -> Path:
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=mark).writerows(rows)
    return path


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_csv_file(mark: str, tmp_path: Path) -> None:
    root = make_own(tmp_path / "my own")
    rows = [(p.relative_to(tmp_path).as_posix(), p.parent.name) for p in sorted(root.rglob("*.png"))]
    images = open_at(write_csv(tmp_path / "own.csv", [("File_Name", "Class"), *rows], mark))
    assert images.classes == ("ant", "bee")
    assert images.parts == open_at(root).parts  # the bytes decide, whatever the layout
    assert images.title == "own"


def test_a_csv_file_with_splits_and_other_columns(tmp_path: Path) -> None:
    root = make_own(tmp_path / "own")
    rows = [(str(p), p.parent.name, ["train", "test"][i % 2]) for i, p in enumerate(sorted(root.rglob("*.png")))]
    path = write_csv(tmp_path / "own.csv", [("where", "what", "split"), *rows])
    images = open_at(path, image_column="where", label_column="what")
    assert len(images.parts["test"]) == 12
    with pytest.raises(UserError, match=r"own\.csv has no column for the image: it has where, what, split; name one"):
        open_at(path)
    with pytest.raises(UserError, match="has no column 'nope'"):
        open_at(path, image_column="nope")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [("own/ant/000.png", "ant"), ("own/ant/gone.png", "ant")],
            "1 label without an image file: row 2: 'own/ant/go",
        ),
        ([("own/ant/000.png", "ant"), ("", "ant")], "1 label without an image file: row 2: ''"),
        ([("own/ant/000.png", "ant"), ("own/ant/001.png", " ")], "1 image without a label: row 2"),
        ([], "has no rows"),
    ],
)
def test_a_csv_file_that_does_not_fit(rows: list[tuple[str, ...]], message: str, tmp_path: Path) -> None:
    make_own(tmp_path / "own")
    with pytest.raises(UserError, match=message):
        open_at(write_csv(tmp_path / "own.csv", [("image", "label"), *rows]))


def test_parquet_files_and_saved_data_sets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    root = make_own(tmp_path / "own")
    files = sorted(root.rglob("*.png"))
    columns = {"photo": list(map(str, files)), "kind": [0 if p.parent.name == "ant" else 1 for p in files]}
    features = datasets.Features({"photo": datasets.Image(), "kind": datasets.ClassLabel(names=["ant", "bee"])})
    data = datasets.Dataset.from_dict(columns, features=features)
    data.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict({"train": data.select(range(0, 24, 2)), "test": data.select(range(1, 24, 2))}).save_to_disk(
        str(tmp_path / "splits")
    )
    data.to_parquet(str(tmp_path / "bytes.parquet"))
    expected = open_at(root)
    for name in ("saved", "bytes.parquet"):
        images = open_at(tmp_path / name)
        assert images.classes == ("ant", "bee")
        assert images.parts == expected.parts
        assert (images.photographs("val", 32).pixels(0) == expected.photographs("val", 32).pixels(0)).all()
    images = open_at(tmp_path / "splits")
    assert len(images.parts["test"]) == 12
    assert count(images) == 24


def test_small_images_in_memory(tmp_path: Path) -> None:
    images = open_at(make_own(tmp_path / "own", side=28))
    assert images.short_side == 28
    assert not images.grey
    small = images.small(28, 3, quiet=True)
    assert small.train.images.shape[1:] == (3, 28, 28)
    assert small.validation is not None
    assert [len(s) for s in (small.train, small.validation, small.test)] == [*map(len, images.parts.values())]
    assert torch.equal(small.train.labels.unique(), torch.tensor([0, 1]))


def flatten(root: Path) -> None:
    for path in [*root.glob("*/*")]:
        path.rename(root / f"{path.parent.name}{path.name}")
    empty(root)


def keep(folder: Path, count: int) -> None:
    for path in sorted(folder.iterdir())[count:]:
        path.unlink()


def empty(root: Path) -> None:
    for name in ("ant", "bee"):
        shutil.rmtree(root / name)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda root: shutil.rmtree(root), "no folder or file"),
        (empty, "has no images"),
        (lambda root: shutil.rmtree(root / "bee"), "at least two classes to train on, and there is only 'ant'"),
        (lambda root: keep(root / "bee", 2), "'bee' has 2 different images"),
        (lambda root: keep(root / "bee", 0), "class folder .*bee has no image"),
        (lambda root: [p.write_bytes(b"x") for p in (root / "bee").glob("00[01]*")], "2 of 24 images cannot be read"),
        (flatten, "lie in it directly"),
    ],
)
def test_folders_that_do_not_fit(break_it: Any, message: str, tmp_path: Path) -> None:
    root = make_own(tmp_path / "own")
    break_it(root)
    with pytest.raises(UserError, match=message):
        open_at(root)


def test_unreadable_images_are_named_with_reasons(tmp_path: Path) -> None:
    root = make_own(tmp_path / "own")
    (root / "ant" / "bad.png").write_bytes(b"no image at all")
    with pytest.raises(UserError, match=r"bad\.png: it is not a JPEG, PNG"):
        open_at(root)


def test_one_unreadable_image_of_many_is_left_out(tmp_path: Path) -> None:
    root = make_own(tmp_path / "own", 60, side=16)
    (root / "ant" / "000.png").write_bytes(b"no image at all")
    images = open_at(root)
    assert [Path(name).name for name in images.bad] == ["000.png"]
    assert count(images) == 119
