"""Prepares stores; a repeated call makes what is missing, and bad input is named."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epitomic.cli import main
from epitomic.data.photographs.color import ColorStatistics, measure_colors
from epitomic.data.photographs.folders import FolderImages, list_images
from epitomic.data.photographs.prepare import prepare
from epitomic.data.photographs.store import StoreImages
from tests.data.photographs.conftest import SIZE
from tests.photographs import make_folders, picture


def test_the_statistics_are_those_of_the_resized_training_images(folders: Path, store: Path) -> None:
    stored = StoreImages(store, "train")
    colors = ColorStatistics.load(store / "statistics.json", stored.fingerprint)
    plain = FolderImages(list_images(folders / "train"), SIZE)
    pixels = np.concatenate([np.asarray(plain.read(i)).reshape(-1, 3) for i in range(len(plain))]) / 255
    np.testing.assert_allclose(colors.mean, pixels.mean(0), rtol=1e-9)
    np.testing.assert_allclose(colors.covariance, np.cov(pixels.T, ddof=0), rtol=1e-9)
    for workers in (0, 2):
        measured = measure_colors(plain, workers)
        assert (measured.mean, measured.covariance) == (colors.mean, colors.covariance)


def test_images_of_the_right_size_are_kept_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "in/a").mkdir(parents=True)
    picture(1).save(tmp_path / "in/a/x.webp", quality=80)
    prepare(tmp_path / "in", tmp_path / "out", size=32, workers=1)
    stored = StoreImages(tmp_path / "out", "train")
    assert stored.table[0]["image"][0].as_py()["bytes"] == (tmp_path / "in/a/x.webp").read_bytes()


def test_only_plain_files_are_kept_byte_for_byte(tmp_path: Path) -> None:
    """Readers of a store ignore orientation tags and know JPEG, PNG and WebP alone."""
    (tmp_path / "in/a").mkdir(parents=True)
    upright, exif = picture(1), Image.Exif()
    exif[0x0112] = 6
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "in/a/turned.png", exif=exif)
    upright.save(tmp_path / "in/a/upright.avif", quality=100, subsampling="4:4:4")
    for name in ("upright.bmp", "upright.tif", "upright.TIFF"):
        upright.save(tmp_path / "in/a" / name)
    prepare(tmp_path / "in", tmp_path / "out", size=32, quality=100, workers=1)
    stored = StoreImages(tmp_path / "out", "train")
    assert len(stored) == 5
    for index in range(5):
        assert stored.table[index]["image"][0].as_py()["bytes"].startswith(b"\xff\xd8")  # JPEG
        assert stored.read(index).size == (40, 32)
        assert np.abs(np.asarray(stored.read(index)).astype(float) - np.asarray(upright)).mean() < 3


def test_bad_images_are_listed_and_the_status_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_folders(tmp_path / "in")
    broken = source / "train/ant/000.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    (source / "val/bee/zzz.png").write_text("no image")
    picture(1, width=1, height=3000).save(source / "val/cat/thin.png")  # 24 x 72,000, which JPEG cannot hold
    words = ["prepare", str(source), str(tmp_path / "out"), "--size", "24", "--workers", "1"]
    for _ in range(2):  # the second call finds all done, and says the same
        assert main(words) == 1
        assert "3 images could not be read" in capsys.readouterr().err
        rows = list(csv.DictReader((tmp_path / "out/bad_images.csv").open()))
        assert [row["image"] for row in rows] == list(map(str, (broken, *sorted(source.glob("val/*/[tz]*")))))
        assert "not a JPEG, PNG" in rows[1]["reason"]
        assert "1 x 3000 pixels would become 24 x 72000" in rows[2]["reason"]
    assert len(StoreImages(tmp_path / "out", "train")) == 3 * 8 - 1


def test_skipped_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_folders(tmp_path / "in")
    for name in ("train/ant/x.psd", "train/ant/.hidden", "val/loose.png", "val/bee/deep/y.png"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(b"")
    assert main(["prepare", str(source), str(tmp_path / "out"), "--size", "24", "--workers", "1"]) == 0
    assert "skipped 3 files and folders that are not CLASS/IMAGE with .jpg" in (told := capsys.readouterr().err)
    assert f"the first: {source / 'train/ant/x.psd'}" in told


def test_a_second_call_does_only_what_is_missing(folders: Path, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    (copy / "index.json").unlink()
    (copy / "records/val/shard-00000.json").unlink()
    before = (copy / "train/shard-00000.arrow").stat().st_mtime_ns
    prepare(folders, copy, size=SIZE, workers=1)
    assert (copy / "train/shard-00000.arrow").stat().st_mtime_ns == before
    for name in ("index.json", "statistics.json", "val/shard-00000.arrow"):
        assert (copy / name).read_bytes() == (store / name).read_bytes()


def test_kill_and_go_on(tmp_path: Path) -> None:
    source = make_folders(tmp_path / "in", train=150, val=4)  # 4 shards
    prepare(source, tmp_path / "straight", size=64, workers=1)
    out = tmp_path / "out"
    words = [sys.executable, "-m", "epitomic", "prepare", str(source), str(out), "--size", "64", "--workers", "1"]
    process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(out.glob("records/train/*.json")):
        time.sleep(0.005)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    prepare(source, out, size=64, workers=2)
    files = sorted(p.relative_to(out) for p in out.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(tmp_path / "straight") for p in (tmp_path / "straight").rglob("*.*"))
    assert all((out / name).read_bytes() == (tmp_path / "straight" / name).read_bytes() for name in files)


def test_a_shard_that_cannot_be_written_is_named_and_a_second_call_goes_on(folders: Path, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    words = [sys.executable, "-m", "epitomic", "prepare", str(folders), str(tmp_path / "out"), "--size", "96"]
    result = subprocess.run(
        [*words, "--quiet", "--workers", "1"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000)),  # as a full disk, for one process
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "cannot write" in result.stderr
    assert "shard-00000.arrow" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list((tmp_path / "out").rglob("*.tmp"))
    assert not list((tmp_path / "out").rglob("*.arrow"))
    assert prepare(folders, tmp_path / "out", size=96).images == len(list(folders.rglob("*.*")))


def remove_classes(root: Path) -> None:
    for path in list((root / "train").iterdir()):
        shutil.rmtree(path)


def flatten_validation(root: Path) -> None:
    for path in list((root / "val").glob("*/000*")):
        path.rename(root / "val" / f"{path.parent.name}{path.name}")
        shutil.rmtree(path.parent)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda root: shutil.rmtree(root), "no folder"),
        (lambda root: [p.unlink() for p in (root / "train/bee").iterdir()], "train/bee has no image"),
        (lambda root: shutil.rmtree(root / "val/cat"), "lacks cat"),
        (lambda root: (root / "val/cat").rename(root / "val/dog"), "lacks cat"),
        (remove_classes, "a folder of images for each class"),
        (flatten_validation, "lie in it directly"),
        (lambda root: [p.write_text("x") for p in (root / "train/bee").iterdir()], "has no image that can be read"),
    ],
)
def test_bad_folders_are_named(
    spoil: Callable[[Path], object], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make_folders(tmp_path / "in", train=2, val=1)
    spoil(source)
    assert main(["prepare", str(source), str(tmp_path / "out"), "--size", "24", "--workers", "1"]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out/index.json").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("{folders} {store} --size 25", "was made from other images or with another --size"),
        ("{folders} {plain}", "is not empty and not a store"),
        ("{folders} {new} --size 0", "--size must be from 1"),
        ("{folders} {new} --quality 101", "--quality must be from 1 to 100"),
        ("{folders} {new} --workers 0", "--workers must be from 1"),
        ("{new} {new}2", "no folder"),
    ],
)
def test_bad_options(
    words: str, says: str, folders: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = make_folders(tmp_path / "plain", 1, 1)
    before = {p: p.stat().st_mtime_ns for p in store.rglob("*")}
    full = words.format(folders=folders, store=store, new=tmp_path / "new", plain=plain)
    assert main(["prepare", *full.split()]) == 2
    assert says in capsys.readouterr().err
    assert {p: p.stat().st_mtime_ns for p in store.rglob("*")} == before


def test_a_folder_of_classes_alone_is_all_train(tmp_path: Path) -> None:
    make_folders(tmp_path / "in", train=2, val=1)
    made = prepare(tmp_path / "in/train", tmp_path / "out", size=24, workers=1)
    assert made.images == 6
    assert list(json.loads((tmp_path / "out/index.json").read_text())["splits"]) == ["train"]
