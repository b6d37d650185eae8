"""Times the input of photographs, and shows three claims.

- `epitomic prepare` is at least 0.9x as fast as bare Pillow calls on the same images and processes.
- Training input is at least 5x faster than the `epitomic` network consumes it.
- Memory stays flat over an epoch.

It makes photographs of 500 x 375 pixels in a temporary folder, or takes the class folders of --source.

    python benchmarks/image_input.py prepare    # times both in turns, and prints the median of the ratios
    python benchmarks/image_input.py input      # images/s of the input, and of a training step at 220 pixels
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
import torch
import torch.nn.functional as F
from PIL import Image

from epitomic.data.feed import Part
from epitomic.data.photographs.crops import Photographs
from epitomic.data.photographs.folders import list_splits
from epitomic.data.photographs.open import open_photographs
from epitomic.data.photographs.prepare import prepare
from epitomic.models import create_model


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


def time_prepare(source: Path, folder: Path, rounds: int, workers: int) -> None:
    paths = [listing.root / name for listing in list_splits(source).values() for name in listing.names]
    prepare(source, folder / "warm", workers=workers)  # imports, file cache
    ratios = []
    for number in range(rounds):
        began = time.perf_counter()
        with multiprocessing.Pool(workers) as pool:
            pool.map(bare, paths, chunksize=16)
        middle = time.perf_counter()
        prepare(source, folder / str(number), workers=workers)
        rates = [len(paths) / seconds for seconds in (middle - began, time.perf_counter() - middle)]
        ratios.append(rates[1] / rates[0])
        print(f"bare Pillow {rates[0]:.0f} images/s   prepare {rates[1]:.0f} images/s   {ratios[-1]:.3f}")
    print(
        f"prepare is {statistics.median(ratios):.3f}x as fast as bare Pillow (median of {rounds}, {workers} processes)"
    )


def time_input(store: Path, workers: int, batch: int, seconds: float) -> None:
    feed = open_photographs("photographs", store, Photographs(), batch_size=batch, seed=0, workers=workers)
    count, began = 0, time.perf_counter()
    for epoch in range(1000):
        for _, labels in feed.stream(epoch, 0, Part()):
            count += len(labels)
        if time.perf_counter() - began > seconds:
            break
    rate = count / (time.perf_counter() - began)
    model = create_model("epitomic", num_classes=1000).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, 220, 220).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,))
    times = []
    while len(times) < 2 or sum(times) < seconds:
        began = time.perf_counter()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    consumed = batch / min(times)
    print(
        f"input: {rate:.0f} images/s ({workers} workers); training epitomic at width 1, 220 pixels, batch {batch}: "
        f"{consumed:.1f} images/s; the input is {rate / consumed:.1f}x faster"
    )


def watch_memory(store: Path, workers: int, batch: int) -> None:
    feed = open_photographs("photographs", store, Photographs(), batch_size=batch, seed=0, workers=workers)
    sizes = []
    for epoch in range(2):
        for _ in feed.stream(epoch, 0, Part()):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            sizes.append(pages * resource.getpagesize() / 2**20)
    eighths = [f"{max(part):.0f}" for part in np.array_split(sizes, 8)]
    print(f"largest resident memory in each eighth of 2 epochs of {len(feed)} batches, in MB: {', '.join(eighths)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "input", "memory"), help="what to measure")
    parser.add_argument("--source", type=Path, help="class folders (default: photographs made for this)")
    parser.add_argument("--images", type=int, default=800, help="photographs to make (default: 800)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of prepare (default: 5)")
    parser.add_argument("--batch", type=int, default=32, help="images in a batch (default: 32)")
    parser.add_argument("--seconds", type=float, default=10, help="minimum time of a measurement (default: 10)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: one per core)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = args.source or Path(folder) / "in"
        if not args.source:
            elsewhere(make_photographs, source, args.images)
        if args.what == "prepare":
            time_prepare(source, Path(folder), args.rounds, args.workers)
            return
        elsewhere(prepare, source, Path(folder) / "store")
        if args.what == "input":
            time_input(Path(folder) / "store", args.workers, args.batch, args.seconds)
        else:
            watch_memory(Path(folder) / "store", args.workers, args.batch)


if __name__ == "__main__":
    main()
