"""Times `epitomic prepare`, and watches the memory of the input. `epitomic bench --input` times the input itself.

- `epitomic prepare` is at least 0.9x as fast as bare Pillow calls on the same images and processes.
- Memory stays flat over an epoch.

It makes photographs of 500 x 375 pixels in a temporary folder, or takes the class folders of --source.

    python benchmarks/image_input.py prepare    # times both in turns, and prints the median of the ratios
    python benchmarks/image_input.py memory     # resident memory over the batches of two epochs
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from epitomic.bench.records import write_records
from epitomic.data.feed import Part
from epitomic.data.photographs.crops import Photographs
from epitomic.data.photographs.folders import list_splits
from epitomic.data.photographs.open import open_photographs
from epitomic.data.photographs.prepare import prepare
from epitomic.support.machine import timing_facts
from epitomic.support.memory import resident_bytes


def elsewhere(function: Callable[..., object], *arguments: object) -> None:
    """Calls a function in a process of its own, so that this process's memory does not grow."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0


def make_photographs(root: Path, count: int) -> None:
    """Makes smooth shapes with noise. Their JPEG files are about as large as those of photographs."""
    rng = np.random.default_rng(0)
    for split, number in (("train", count), ("val", 8)):
        for index in range(number):
            folder = root / split / f"class{index % 4}"
            folder.mkdir(parents=True, exist_ok=True)
            shapes = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize((500, 375), Image.BICUBIC)
            noise = rng.normal(0, 10, (375, 500, 1))
            pixels = (np.asarray(shapes) + noise).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{index}.jpg", quality=90)


def bare(path: Path) -> int:
    """Decodes, resizes and encodes with bare Pillow calls."""
    image = Image.open(path).convert("RGB")
    scale = 256 / min(image.size)
    small = image.resize((round(image.width * scale), round(image.height * scale)), Image.BILINEAR)
    file = io.BytesIO()
    small.save(file, "JPEG", quality=95, subsampling=0)
    return file.tell()


def time_prepare(source: Path, folder: Path, rounds: int, workers: int, out: Path | None) -> None:
    paths = [listing.root / name for listing in list_splits(source).values() for name in listing.names]
    prepare(source, folder / "warm", workers=workers)  # imports, file cache
    ratios, core_ms, speeds = [], [], []
    for number in range(rounds):
        began = time.perf_counter()
        with multiprocessing.Pool(workers) as pool:
            pool.map(bare, paths, chunksize=16)
        middle, core = time.perf_counter(), core_seconds()
        prepare(source, folder / str(number), workers=workers)
        rates = [len(paths) / seconds for seconds in (middle - began, time.perf_counter() - middle)]
        ratios.append(rates[1] / rates[0])
        speeds.append(rates[1])
        core_ms.append(1000 * (core_seconds() - core) / len(paths))
        print(f"bare Pillow {rates[0]:.0f} images/s   prepare {rates[1]:.0f} images/s   {ratios[-1]:.3f}")
    print(
        f"prepare is {statistics.median(ratios):.3f}x as fast as bare Pillow (median of {rounds}, {workers} processes)"
    )
    if out:
        medians = {"rate": statistics.median(speeds), "core_ms": statistics.median(core_ms)}
        row = {"images": len(paths), "workers": workers, "n": rounds, **{k: f"{v:.4g}" for k, v in medians.items()}}
        row["of_bare_pillow"] = f"{statistics.median(ratios):.3f}"
        write_records(out, row, [row.values()], timing_facts())


def core_seconds() -> float:
    """Returns the processor time of this process and of the children that have ended."""
    return sum(
        u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def watch_memory(store: Path, workers: int, batch: int) -> None:
    feed = open_photographs("photographs", store, Photographs(), batch_size=batch, seed=0, workers=workers)
    sizes = []
    for epoch in range(2):
        for _ in feed.stream(epoch, 0, Part()):
            sizes.append(resident_bytes() / 2**20)
    eighths = [f"{max(part):.0f}" for part in np.array_split(sizes, 8)]
    print(f"largest resident memory in each eighth of 2 epochs of {len(feed)} batches, in MB: {', '.join(eighths)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "memory"), help="what to measure")
    parser.add_argument("--source", type=Path, help="class folders (default: photographs made for this)")
    parser.add_argument("--images", type=int, default=800, help="photographs to make (default: 800)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of prepare (default: 5)")
    parser.add_argument("--batch", type=int, default=32, help="images in a batch (default: 32)")
    parser.add_argument("--out", type=Path, help="CSV file for the timings of prepare (default: write none)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: one per core)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = args.source or Path(folder) / "in"
        if not args.source:
            elsewhere(make_photographs, source, args.images)
        if args.what == "prepare":
            time_prepare(source, Path(folder), args.rounds, args.workers, args.out)
            return
        elsewhere(prepare, source, Path(folder) / "store")
        watch_memory(Path(folder) / "store", args.workers, args.batch)


if __name__ == "__main__":
    main()
