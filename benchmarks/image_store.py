"""Measures how a store of photographs opens and reads with a cold cache, at ImageNet's scale.

    python benchmarks/image_store.py make FOLDER                     # 200,000 images of about 40 kB: 8 GB
    python benchmarks/image_store.py make FOLDER --images 1281167 --empty
    python benchmarks/image_store.py open FOLDER [FOLDER...] --out store.csv
    python benchmarks/image_store.py read FOLDER --out store.csv

`make` writes one shard of sound JPEG files of 256 x 256 pixels: a few different pictures, each with a comment that
makes its bytes unique. All other shards are copies of it. With --empty the shards have their size but no contents and
take no room on the disk: such a store can be opened, not read. `open` and `read` tell the operating system to forget
the files first. They count the bytes that come from the disk by /proc/self/io, and need Linux.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image

from epitomic.bench.image_input import evict
from epitomic.bench.records import write_records
from epitomic.data.photographs.arrow import locate, write_shard
from epitomic.data.photographs.color import ColorSums
from epitomic.data.photographs.prepare import MAXIMUM_SHARDS, write_contents
from epitomic.data.photographs.shards import Made
from epitomic.data.photographs.store import StoreImages, read_index
from epitomic.support.console import Progress, text_table
from epitomic.support.machine import timing_facts
from epitomic.support.memory import forget_peak, peak_bytes, resident_bytes

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


def make(folder: Path, images: int, empty: bool) -> None:
    """Makes a store of at least so many training images."""
    per_shard = max(128, -(-images // MAXIMUM_SHARDS))
    pictures, jpegs, sums = make_pictures(), [], ColorSums()
    for picture in pictures:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=95, subsampling="4:4:4")
        jpegs.append(file.getvalue())
        sums.add(picture)
    first = folder / "first.arrow"
    folder.mkdir(parents=True)
    write_shard(first, CLASSES, rows(jpegs, per_shard))
    table, size = locate(first), first.stat().st_size
    held: dict[str, list[tuple[str, Made]]] = {}
    for split, shards in (("train", -(-images // per_shard)), ("val", 1)):
        (folder / split).mkdir()
        held[split] = []
        for number in range(shards):
            name = f"{split}/shard-{number:05d}.arrow"
            if empty:
                (folder / name).touch()
                os.truncate(folder / name, size)
            else:
                shutil.copyfile(first, folder / name)
            held[split].append((name, Made(size, sums, [], table)))
    first.unlink()
    write_contents(folder, CLASSES, 256, held)


def rows(jpegs: list[bytes], count: int) -> Iterator[tuple[bytes, int, str]]:
    """Yields the images of a shard; their names are as long as ImageNet's."""
    for number in range(count):
        label = number % len(CLASSES)
        yield with_comment(jpegs[number % len(jpegs)], number), label, f"{CLASSES[label]}/{number:015d}.JPEG"


def with_comment(jpeg: bytes, number: int) -> bytes:
    """Puts a number into a JPEG file, as a comment after its first marker."""
    text = f"{number:010d}".encode()
    return jpeg[:2] + b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text + jpeg[2:]


def watch(what: str, store: Path, count: int, seed: int) -> Result:
    """Measures one opening, or one reading of ``count`` images: time, bytes from the disk, and memory at its peak."""
    images = StoreImages(store, "train") if what == "read" else None
    chosen = choose(images, count, seed) if images else []
    evict(store)
    forget_peak()
    memory, read, core, began = resident_bytes(), bytes_read(), time.process_time(), time.perf_counter()
    if images:
        for number in chosen:
            images.contents(number)
    else:
        StoreImages(store, "train")
    seconds = time.perf_counter() - began
    result = {"seconds": seconds, "core_seconds": time.process_time() - core, "bytes_read": bytes_read() - read}
    needed = int(images.table.length[chosen].sum()) if images else read_index(store).splits["train"].table.size
    return {**result, "bytes_needed": needed, "peak_memory_bytes": peak_bytes() - memory}


def choose(images: StoreImages, count: int, seed: int) -> list[int]:
    """Returns the numbers of some images, in random order."""
    return torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[:count].tolist()


def bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def measure(args: argparse.Namespace, store: Path) -> list[object]:
    """Returns a row of the table: the median of each figure, each time in a new process."""
    split = read_index(store).splits["train"]
    images = sum(shard.images for shard in split.shards)
    size = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    results: list[Result] = []
    with Progress(args.repetitions) as progress:
        for turn in range(args.repetitions):
            progress.update(f"{args.what} {store}", turn)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                results.append(pool.apply(watch, (args.what, store, args.count, turn)))
    found = {key: median(result[key] for result in results) for key in results[0]}
    what = f"read {min(args.count, images)} images" if args.what == "read" else args.what
    times = [f"{found[key]:.4g}" for key in ("seconds", "core_seconds")]
    counts = [int(found[key]) for key in ("bytes_read", "bytes_needed", "peak_memory_bytes")]
    return [what, images, size, split.table.size, args.repetitions, *times, *counts]


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
    write_records(args.out, COLUMNS, rows, timing_facts(), append=True)


if __name__ == "__main__":
    main()
