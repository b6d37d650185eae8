"""Times the input of photographs: how many images a second a store gives, and how many cores a network needs for it.

Each step includes the ones before it: reading an image's bytes, decoding it, cropping it, and the whole feed with
worker processes, which gives standardised batches. "Cold" means that the operating system has forgotten the store's
files before the step begins.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from epitomic.bench.timing import Sample
from epitomic.data.feed import Part
from epitomic.data.photographs.crops import Photographs, choose, random_crop
from epitomic.data.photographs.feed import PhotographFeed
from epitomic.data.photographs.open import check_crop, open_photographs
from epitomic.data.photographs.store import StoreImages
from epitomic.models import create_model
from epitomic.support.console import Progress
from epitomic.support.stopwatch import timed

OPEN, READ, DECODE, CROP, FEED = "open", "read", "read, decode", "read, decode, crop", "whole feed"
STEPS = (READ, DECODE, CROP)  # those that one process does, without workers
BATCH = 128  # images
EPOCHS = 3  # most epochs in one timing of the feed; each epoch starts new workers


@dataclass(frozen=True)
class InputResult:
    """Timings of one step."""

    step: str  # one of the names above
    cold: bool  # whether the files had to come from the disk
    workers: int  # number of worker processes; 0 means that this process did it
    rate: Sample  # images a second; for `OPEN`, stores a second
    core: Sample  # core seconds per image, or per store


@dataclass(frozen=True)
class Need:
    """How fast a network needs its images, and what each image costs the workers."""

    network: str
    device: str
    rate: float  # images a second that a training step of the network takes on this machine
    core: float  # core seconds of the workers per image, from the warm feed

    @property
    def cores(self) -> float:
        """Number of cores that the workers need, full time, to keep up with the network."""
        return self.rate * self.core


def run_input(
    store: Path, *, crop: int, workers: Sequence[int], seconds: float, repetitions: int, progress: Progress
) -> list[InputResult]:
    """Times all steps, warm and cold, in turns.

    Args:
        store: A store made by `epitomic prepare`, with the splits train and val.
        crop: Height and width of the crops in pixels.
        workers: Numbers of worker processes to time the feed with.
        seconds: About how long one timing lasts.
        repetitions: How many timings there are of each step.
        progress: Shows what is being timed.
    """
    images = StoreImages(store, "train")
    check_crop("--crop", crop, images.size, store)
    config = Photographs(crop=crop, size=images.size)
    batch = min(BATCH, len(images))
    feeds = [open_photographs("photographs", store, config, batch_size=batch, seed=0, workers=n) for n in workers]
    count = _images_in(seconds, images, config)
    tasks: dict[tuple[str, int], Callable[[int], tuple[float, float]]] = {(OPEN, 0): lambda _: _time_open(store)}
    for step in STEPS:
        tasks[step, 0] = lambda turn, step=step: _time_step(images, config, step, count, turn)  # type: ignore[misc]
    for feed in feeds:
        tasks[FEED, feed.workers] = lambda turn, feed=feed: _time_feed(feed, count * feed.workers, turn)  # type: ignore[misc]
    caches = (False, True) if can_evict() else (False,)
    found: dict[tuple[str, bool, int], list[tuple[float, float]]] = {}
    for turn in range(repetitions):
        for cold in caches:
            for (step, number), task in tasks.items():
                name = f"{step}, {number} workers" if number else step
                progress.update(f"{'cold' if cold else 'warm'}: {name}, repetition {turn + 1} of {repetitions}")
                if cold:
                    images.close()
                    evict(store)
                elif turn == 0:
                    task(turn)  # so that the files are in memory
                found.setdefault((step, cold, number), []).append(task(turn))
                progress.update("", progress.done + 1)
    results = []
    for (step, cold, number), pairs in found.items():
        rates, cores = zip(*pairs, strict=True)
        results.append(InputResult(step, cold, number, Sample(rates), Sample(cores)))
    return results


def timings(workers: Sequence[int], repetitions: int) -> int:
    """Returns how many timings `run_input` takes, for its progress."""
    return repetitions * (1 + len(STEPS) + len(workers)) * (2 if can_evict() else 1)


def worker_counts(cores: int) -> list[int]:
    """Returns 1, 2, 4, ... up to the number of cores.

    >>> worker_counts(6)
    [1, 2, 4, 6]
    """
    counts = [1]
    while counts[-1] * 2 < cores:
        counts.append(counts[-1] * 2)
    return counts + [cores] * (cores > 1)


def can_evict() -> bool:
    """Whether this system can be told to forget the contents of files."""
    return hasattr(os, "posix_fadvise")


def evict(folder: Path) -> None:
    """Tells the operating system to forget the contents of all files in a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)  # only what is on the disk can be forgotten
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def measure_need(
    network: str, crop: int, batch: int, results: Sequence[InputResult], seconds: float, device: torch.device
) -> Need:
    """Times a training step of a network on a device."""
    model = create_model(network, num_classes=1000, in_channels=3, image_size=crop).to(device).train()
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    images = torch.randn(batch, 3, crop, crop, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device=device)

    def step() -> None:
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    times: list[float] = []
    while len(times) < 2 or sum(times) < seconds:
        times.append(timed(step, device))
    return Need(network, device.type, batch / min(times), feed_core_seconds(results))


def feed_core_seconds(results: Sequence[InputResult]) -> float:
    """Returns the workers' core seconds per image in the warm feed with one worker."""
    return next(r.core.median for r in results if r.step == FEED and not r.cold and r.workers == 1)


def _images_in(seconds: float, images: StoreImages, config: Photographs) -> int:
    """Returns about how many images one process prepares in ``seconds``, and at least `BATCH`."""
    began, done = time.perf_counter(), 0
    for index in _some(len(images), 0):
        _step(images, config, CROP, index)
        done += 1
        if time.perf_counter() - began > min(0.5, seconds):
            break
    return max(BATCH, int(seconds * done / (time.perf_counter() - began)))


def _some(length: int, turn: int) -> Iterator[int]:
    """Yields the numbers of all images in random order, without end."""
    draws = torch.Generator().manual_seed(turn)
    while True:
        yield from torch.randperm(length, generator=draws).tolist()


def _step(images: StoreImages, config: Photographs, step: str, index: int) -> None:
    if step == READ:
        images.contents(index)
    elif step == DECODE:
        images.pixels(index)
    else:
        random_crop(images.pixels(index), config, choose(0, 0, index)).copy()


def _time_open(store: Path) -> tuple[float, float]:
    began, core = time.perf_counter(), time.process_time()
    StoreImages(store, "train")
    return 1 / (time.perf_counter() - began), time.process_time() - core


def _time_step(images: StoreImages, config: Photographs, step: str, count: int, turn: int) -> tuple[float, float]:
    order = _some(len(images), turn)
    began, core = time.perf_counter(), time.process_time()
    for _ in range(count):
        _step(images, config, step, next(order))
    return count / (time.perf_counter() - began), (time.process_time() - core) / count


def _time_feed(feed: PhotographFeed, count: int, turn: int) -> tuple[float, float]:
    """Times the feed over about ``count`` images, or fewer if the store is small.

    The start of the workers is not timed, but the core seconds that it takes count.
    """
    core = _children()
    images = timed = 0
    seconds = 0.0
    for epoch in range(EPOCHS * turn, EPOCHS * (turn + 1)):
        batches = min(len(feed), -(-(count - images) // feed.batch_size))
        if batches <= 0:
            break
        # Each worker makes its first batch at the same time as the others: the clock starts after these.
        start = min(feed.workers, batches - 1)
        began = time.perf_counter()
        for number, (_, labels) in enumerate(feed.stream(epoch, len(feed) - batches, Part())):
            images += len(labels)
            if number >= start:
                timed += len(labels)
            if number == start - 1:
                began = time.perf_counter()
        seconds += time.perf_counter() - began
    return timed / seconds, (_children() - core) / images


def _children() -> float:
    """Returns the core seconds of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
