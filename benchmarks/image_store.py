"""Measures how a store of photographs opens and reads with a cold cache, at ImageNet's scale.

    python benchmarks/image_store.py make FOLDER                     # 200,000 images of about 40 kB: 8 GB, minutes
    python benchmarks/image_store.py make FOLDER --images 1281167 --empty
    python benchmarks/image_store.py open FOLDER [FOLDER...] --out store.csv
    python benchmarks/image_store.py read FOLDER --out store.csv

`make` writes sound JPEG files of 256 x 256 pixels: a few different pictures, each with a comment that makes its bytes
unique. With --empty the shards have their size but no contents and take no room on the disk: such a store can be
opened, not read. `open` and `read` tell the operating system to forget the files first. They count the bytes that come
from the disk by /proc/self/io, and need Linux.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image

from epitomic.bench.image_input import evict
from epitomic.data.photographs.arrow import locate, write_shard
from epitomic.data.photographs.color import ColorSums
from epitomic.data.photographs.prepare import MAXIMUM_SHARDS, write_contents
from epitomic.data.photographs.shards import Made
from epitomic.data.photographs.store import StoreImages, read_index
from epitomic.data.photographs.table import Table
from epitomic.support.console import Progress, text_table
from epitomic.support.machine import timing_facts

CLASSES = tuple(f"n{number:08d}" for number in range(1000))
COLUMNS = (
    *("what", "images", "store_bytes", "table_bytes", "n", "seconds", "core_seconds"),
    *("bytes_read", "bytes_needed", "peak_memory_bytes"),
)
Result = dict[str, float]


def make_pictures(count: int = 16) -> list[Image.Image]:
    """Makes smooth shapes with noise, whose JPEG files are about as large as those of photographs."""
    rng = np.random.default_rng(0)
    pictures = []
    for _ in range(count):
        shapes = Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).resize((256, 256), Image.BICUBIC)
        pixels = np.asarray(shapes) + rng.normal(0, 5.5, (256, 256, 1))
        pictures.append(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)))
    return pictures


def with_comment(jpeg: bytes, number: int) -> bytes:
    """Puts a number into a JPEG file, as a comment after its first marker."""
    text = f"{number:010d}".encode()
    return jpeg[:2] + b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text + jpeg[2:]


def make(folder: Path, images: int, empty: bool) -> None:
    """Makes a store of so many training images and 1,000 validation images."""
    pictures, jpegs, sums = make_pictures(), [], ColorSums()
    for picture in pictures:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=95, subsampling="4:4:4")
        jpegs.append(file.getvalue())
        sums.add(picture)
    held: dict[str, list[tuple[str, Made]]] = {}
    with Progress(images, unit="images") as progress:
        for split, count in (("train", images), ("val", 1000)):
            (folder / split).mkdir(parents=True)
            per_shard = max(128, -(-count // MAXIMUM_SHARDS))
            held[split] = []
            for first in range(0, count, per_shard):
                numbers = range(first, min(first + per_shard, count))
                file_name = f"{split}/shard-{first // per_shard:05d}.arrow"
                table = (make_empty if empty else make_shard)(folder / file_name, jpegs, numbers, count)
                size = (folder / file_name).stat().st_size
                held[split].append((file_name, Made(size, sums, [], table)))
                progress.update(split, numbers.stop if split == "train" else images)
    write_contents(folder, CLASSES, 256, held)


def label_and_name(number: int, count: int) -> tuple[int, str]:
    """Returns the label and the name of an image; names are as long as ImageNet's."""
    label = number * len(CLASSES) // count
    return label, f"{CLASSES[label]}/{CLASSES[label]}_{number:07d}.JPEG"


def make_shard(path: Path, jpegs: list[bytes], numbers: range, count: int) -> Table:
    def rows() -> Iterator[tuple[bytes, int, str]]:
        for number in numbers:
            yield with_comment(jpegs[number % len(jpegs)], number), *label_and_name(number, count)

    write_shard(path, CLASSES, rows())
    return locate(path)


def make_empty(path: Path, jpegs: list[bytes], numbers: range, count: int) -> Table:
    lengths = [len(jpegs[number % len(jpegs)]) + 14 for number in numbers]
    offsets = np.cumsum([0, *lengths])[:-1].tolist()
    labels, names = zip(*(label_and_name(number, count) for number in numbers), strict=True)
    crcs = [zlib.crc32(name.encode()) for name in names]
    path.touch()
    os.truncate(path, sum(lengths))
    return Table.of({"label": list(labels), "offset": offsets, "length": lengths, "crc": crcs}, names)


def watch(task: Iterator[None]) -> Result:
    """Measures the steps of a task, after its first one: time, bytes from the disk, and memory at its peak."""
    next(task)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the memory so far
    memory, read, core, began = status("VmRSS"), bytes_read(), time.process_time(), time.perf_counter()
    for _ in task:
        pass
    seconds = time.perf_counter() - began
    result = {"seconds": seconds, "core_seconds": time.process_time() - core, "bytes_read": bytes_read() - read}
    return {**result, "peak_memory_bytes": status("VmHWM") - memory}


def status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(key)))


def bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def open_cold(store: Path) -> Iterator[None]:
    torch.zeros(10).numpy().sum()
    evict(store)
    yield
    StoreImages(store, "train")


def read_cold(store: Path, count: int, seed: int) -> Iterator[None]:
    images = StoreImages(store, "train")
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[:count].tolist()
    evict(store)
    yield
    for number in chosen:
        images.contents(number)


def measure(args: argparse.Namespace, store: Path) -> list[object]:
    """Returns a row of the table: the median of each figure."""
    images = StoreImages(store, "train")
    table = read_index(store).splits["train"].table
    size = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    results, needed = [], []
    with Progress(args.repetitions) as progress:
        for turn in range(args.repetitions):
            progress.update(f"{args.what} {store}", turn)
            draws = torch.Generator().manual_seed(turn)
            chosen = torch.randperm(len(images), generator=draws)[: args.count]
            needed.append(int(images.table.length[chosen].sum()) if args.what == "read" else table.size)
            task = read_cold(store, args.count, turn) if args.what == "read" else open_cold(store)
            results.append(watch(task))
    found = {key: median(result[key] for result in results) for key in results[0]}
    what = f"{args.what} {min(args.count, len(images))} images" if args.what == "read" else args.what
    head = [what, len(images), size, table.size, args.repetitions]
    times = [f"{found[key]:.4g}" for key in ("seconds", "core_seconds")]
    return [*head, *times, int(found["bytes_read"]), int(median(needed)), int(found["peak_memory_bytes"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "open", "read"), help="what to do")
    parser.add_argument("stores", nargs="+", type=Path, metavar="FOLDER", help="stores; `make` makes a new one")
    parser.add_argument("--images", type=int, default=200_000, help="make: training images (default: 200000)")
    parser.add_argument("--empty", action="store_true", help="make: write no images (default: write them)")
    parser.add_argument("--count", type=int, default=2000, help="read: images, in random order (default: 2000)")
    parser.add_argument("--repetitions", type=int, default=3, help="open, read: how often (default: 3)")
    parser.add_argument("--out", type=Path, help="CSV file to which the results are added (default: write none)")
    args = parser.parse_args()
    if args.what == "make":
        make(args.stores[0], args.images, args.empty)
        return
    rows = [measure(args, store) for store in args.stores]
    print(text_table(COLUMNS, [list(map(str, row)) for row in rows], right=range(1, len(COLUMNS))))
    if args.out:
        facts, new = timing_facts(), not args.out.exists()
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("a", newline="") as file:
            lines = [[*COLUMNS, *facts]] if new else []
            csv.writer(file).writerows([*lines, *([*row, *facts.values()] for row in rows)])


if __name__ == "__main__":
    main()
