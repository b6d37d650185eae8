"""Prepares stores; a repeated call makes what is missing, and bad input is named."""

from __future__ import annotations

import contextlib
import csv
import io
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
from epitomic.data.photographs.color import measure_colors
from epitomic.data.photographs.folders import FolderImages, list_images
from epitomic.data.photographs.prepare import prepare
from epitomic.data.photographs.store import StoreImages, read_store_statistics
from epitomic.support.errors import UserError
from tests.data.photographs.conftest import SIZE
from tests.photographs import make_folders, picture


def test_the_statistics_are_those_of_the_resized_training_images(folders: Path, store: Path) -> None:
    stored = StoreImages(store, "train")
    colors = read_store_statistics(store, stored.fingerprint)
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
    assert stored.contents(0) == (tmp_path / "in/a/x.webp").read_bytes()


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
        assert stored.contents(index).startswith(b"\xff\xd8")  # JPEG
        assert stored.read(index).size == (40, 32)
        assert np.array_equal(stored.pixels(index), np.asarray(stored.read(index)))
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
    for name in ("index.json", "statistics.json", "val/shard-00000.arrow", "val/table.safetensors"):
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
        ("{folders} {store} --size 25", "with another --size, --quality or --subsampling"),
        ("{folders} {plain}", "is not empty and not a store"),
        ("{folders} {new} --size 0", "--size must be from 1"),
        ("{folders} {new} --quality 101", "--quality must be from 1 to 100"),
        ("{folders} {new} --workers 0", "--workers must be from 1"),
        ("{folders} {new} --subsampling 4:1:1", "--subsampling invalid choice: '4:1:1'"),
        ("{folders} {new} --part 0/4", "--part must be I/N with I from 1 to N, such as 3/16, got '0/4'"),
        ("{folders} {new} --part 5/4", "--part must be I/N"),
        ("{folders}", "DST is missing"),
        ("{store} {new} --upgrade", "--upgrade takes one folder"),
        ("{store} --upgrade", "has format 2: only a store of format 1 can be upgraded"),
        ("{plain} --upgrade", "there is no such file"),
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


def contents(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in sorted(store.rglob("*")) if p.is_file()}


def test_parts_joined_are_the_same_bytes_as_one_piece(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_folders(tmp_path / "in", train=180, val=50)  # 5 and 2 shards
    (source / "train/bee/zzz.png").write_text("no image")
    words = ["prepare", str(source), str(tmp_path / "parts"), "--size", "24", "--workers", "1"]
    assert main([*words[:2], str(tmp_path / "whole"), *words[3:]]) == 1
    for part in (3, 1, 4, 2):
        assert main([*words, "--part", f"{part}/4"]) == (1 if part == 3 else 0)  # its third shard has the bad image
        assert not (tmp_path / "parts/index.json").exists()
        assert "join them with the same command without --part" in capsys.readouterr().out
    assert len(list((tmp_path / "parts").rglob("*.arrow"))) == 7
    made = {p: p.stat().st_mtime_ns for p in (tmp_path / "parts").rglob("*.arrow")}
    assert main(words) == 1
    assert {p: p.stat().st_mtime_ns for p in made} == made  # the last call makes no shard again
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_another_job_that_begins_at_the_same_time(folders: Path, tmp_path: Path) -> None:
    """Its plan may still be under its temporary name."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/plan.json.1234.tmp").touch()
    assert prepare(folders, tmp_path / "out", size=24, workers=1, part=(1, 2)).images == 24


def test_subsampling_and_quality(folders: Path, tmp_path: Path) -> None:
    kinds = {"4:4:4": [(1, 1)] * 3, "4:2:0": [(2, 2), (1, 1), (1, 1)]}
    for kind, factors in kinds.items():
        out = tmp_path / kind.replace(":", "")
        words = ["prepare", str(folders), str(out), "--size", "20", "--quality", "80", "--subsampling", kind, "--quiet"]
        assert main([*words, "--workers", "1"]) == 0
        with Image.open(io.BytesIO(StoreImages(out, "train").contents(0))) as image:
            assert [tuple(layer[1:3]) for layer in image.layer] == factors  # type: ignore[attr-defined]


PREPARE = """
import multiprocessing, sys
from pathlib import Path
from epitomic.data.photographs.prepare import prepare

if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    prepare(Path(sys.argv[2]), Path(sys.argv[3]), size=500, workers=2)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("method", ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.long)])
def test_workers_end_when_their_parent_is_killed(method: str, tmp_path: Path) -> None:
    source = make_folders(tmp_path / "in", train=100, val=1, scale=3)
    (tmp_path / "script.py").write_text(PREPARE)
    words = [sys.executable, str(tmp_path / "script.py"), method, str(source), str(tmp_path / "out")]
    process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def alive() -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, group = path.read_text().rpartition(")")[2].split()[:3]
                if int(group) == process.pid and state != "Z":
                    found.append(int(path.parent.name))
        return found

    while not list((tmp_path / "out").glob("train/*.tmp")):
        assert process.poll() is None
        time.sleep(0.01)
    workers = [pid for pid in alive() if pid != process.pid]
    assert len(workers) >= 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive()


def test_a_damaged_record_is_made_again(folders: Path, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    record = copy / "records/train/shard-00000.json"
    record.write_text(record.read_text().replace('"pixels": 1', '"pixels": 2'))
    table = copy / "records/val/shard-00000.safetensors"
    table.write_bytes(table.read_bytes()[:-1] + b"?")
    prepare(folders, copy, size=SIZE, workers=1)
    assert contents(copy) == contents(store)


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    """Before, such an image ended `prepare`, or a training at its end, with a traceback."""
    source = make_folders(tmp_path / "in", train=4, val=2)
    for split in ("train", "val"):
        folder = source / split / "ant"
        shutil.copy(folder / "000.jpg", os.fsdecode(os.fsencode(folder) + b"/caf\xe9.jpg"))
        Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff.jpg")).write_bytes(b"junk")
    made = prepare(source, tmp_path / "store", size=24, workers=1)
    assert (made.images, len(made.bad)) == (20, 2)
    assert len(StoreImages(tmp_path / "store", "train")) == 13
    assert prepare(source, tmp_path / "store", size=24, workers=1).bad == made.bad
    (source / "train" / os.fsdecode(b"k\xfc")).mkdir()
    with pytest.raises(UserError, match=r"class folder .*k\\xfc has a name that is not UTF-8: rename it"):
        prepare(source, tmp_path / "other", size=24, workers=1)
