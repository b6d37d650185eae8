"""Makes a store (`data.store`) from class folders.

The images of a split, in the order of their names, are dealt out to shards; a shard is the unit of work. A process
writes one under a temporary name. The first process, which has nothing else to do, waits until it is on the disk,
renames it, then writes its record: what it holds, which images could not be read, and the sums for the colour
statistics. A shard that has a record is done, so that a second call does only what is missing.
"""

from __future__ import annotations

import csv
import io
import multiprocessing
import os
import signal
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from epitomic.data.color import ColorSums
from epitomic.data.folders import Listing, list_splits
from epitomic.data.pixels import BadImageError, decode, encode, resize_short
from epitomic.data.store import BAD, INDEX, STATISTICS, Index, Shard
from epitomic.errors import UserError
from epitomic.files import TEMPORARY, read_json, write_atomically, write_json, write_text

PLAN, RECORDS = "plan.json", "records"
SHARDS = 256  # of a large split: enough to share out, few enough to keep open
SMALLEST = 128  # images of a shard
ROWS = 64  # of a record batch: what a process holds in memory
DAMAGE = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True)
class Work:
    """One shard to make: these images of a class folder."""

    root: Path
    file: Path
    record: Path
    names: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    size: int
    quality: int

    @property
    def made(self) -> Path:
        """Where the shard is until it is on the disk."""
        return self.file.with_suffix(f".made{TEMPORARY}")


@dataclass(frozen=True)
class Prepared:
    """What came of it: images in the store, (path, reason) of those that could not be read, and what was passed by."""

    images: int
    bad: list[tuple[str, str]]
    ignored: list[str]


def prepare(
    source: Path,
    store: Path,
    *,
    size: int = 256,
    quality: int = 95,
    workers: int | None = None,
    report: Callable[[int, int, int], None] = lambda done, total, bad: None,
) -> Prepared:
    """Makes the store, or what is missing of it.

    Args:
        source: Class folders; see `folders.list_splits`.
        store: Where to: a new folder, or one that an interrupted call has left.
        size: Short side of the images.
        quality: Of the JPEG files. Images that have that short side already are not encoded again.
        workers: Processes. None: one a core.
        report: Called now and then with the numbers of images done, of all, and of bad ones.

    Raises:
        UserError: If the folders do not fit, ``store`` is of another set, or a class has no image that can be read.
    """
    splits = list_splits(source)
    _begin(store, splits, {"format": 1, "size": size, "quality": quality})
    works = {split: list(_deal(store, split, listing, size, quality)) for split, listing in splits.items()}
    todo = [work for shards in works.values() for work in shards if not _done(work)]
    total = sum(len(listing.names) for listing in splits.values())
    done = total - sum(len(work.names) for work in todo)
    _make(todo, workers or os.cpu_count() or 1, lambda more, bad: report(done + more, total, bad))
    return _finish(store, splits, works, size)


def _begin(store: Path, splits: dict[str, Listing], options: dict[str, Any]) -> None:
    """Takes possession of a new folder, or checks that it is of the same plan."""
    plan = {**options, "source": {split: listing.fingerprint for split, listing in splits.items()}}
    if (store / PLAN).is_file():
        if read_json(store / PLAN) != plan:
            raise UserError(f"{store} is a store of other images, or with another --size or --quality: name another")
    elif store.exists() and (not store.is_dir() or any(store.iterdir())):
        raise UserError(f"{store} is not empty and is no store: name another folder")
    else:
        write_json(store / PLAN, plan)


def _deal(store: Path, split: str, listing: Listing, size: int, quality: int) -> Iterator[Work]:
    per_shard = max(SMALLEST, -(-len(listing.names) // SHARDS))
    labels = listing.labels.tolist()
    for number, first in enumerate(range(0, len(listing.names), per_shard)):
        part = slice(first, first + per_shard)
        name = f"{split}/shard-{number:05d}"
        file, record = store / f"{name}.arrow", store / RECORDS / f"{name}.json"
        names = listing.names[part]
        yield Work(listing.root, file, record, names, tuple(labels[part]), listing.classes, size, quality)


def _done(work: Work) -> bool:
    try:
        return bool(read_json(work.record)["bytes"] == work.file.stat().st_size)
    except (UserError, OSError, KeyError):
        return False


def _make(todo: list[Work], workers: int, report: Callable[[int, int], None]) -> None:
    """Makes the shards on several processes."""
    import datasets.features  # noqa: F401  # once, before the processes that need them begin
    import PIL.Image
    import pyarrow as pa  # noqa: F401

    PIL.Image.preinit()
    context = multiprocessing.get_context()
    counts, stop = context.Array("q", 2), context.Event()
    pool = ProcessPoolExecutor(
        max(1, min(workers, len(todo))), context, initializer=_begin_worker, initargs=(counts, stop)
    )
    try:
        works = {pool.submit(_make_shard, work): work for work in todo}
        waiting = set(works)
        while waiting:
            ready, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in ready:
                _keep(works[future], future.result())
            report(*counts[:])
    except BrokenProcessPool:
        raise UserError("a process was killed, perhaps for want of memory: go on with fewer --workers") from None
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


_counts: Any = None  # images done, and bad ones, of all processes; set in each of them
_stop: Any = None


def _begin_worker(counts: Any, stop: Any) -> None:
    global _counts, _stop
    _counts, _stop = counts, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process, which then sets `stop`


def _make_shard(work: Work) -> dict[str, Any]:
    """Writes one shard under a temporary name and returns its record, or nothing if told to stop."""
    sums = ColorSums()
    bad: list[tuple[str, str]] = []

    def rows() -> Iterator[dict[str, Any]]:
        for name, label in zip(work.names, work.labels, strict=True):
            if _stop.is_set():
                raise _StopError
            path, wrong = work.root / name, len(bad)
            try:
                contents = _convert(path, work.size, work.quality, sums)
                text = os.fsencode(name).decode(errors="replace")
                image = {"bytes": contents, "path": None}
                yield {"image": image, "label": label, "name": text, "crc": zlib.crc32(contents)}
            except BadImageError as error:
                bad.append((os.fsencode(path).decode(errors="replace"), str(error)))
            with _counts.get_lock():
                _counts[0] += 1
                _counts[1] += len(bad) - wrong

    try:
        work.made.parent.mkdir(parents=True, exist_ok=True)
        _write_shard(work.made, work.classes, rows())
    except _StopError:
        work.made.unlink(missing_ok=True)
        return {}
    except OSError as error:
        work.made.unlink(missing_ok=True)
        raise UserError(f"cannot write {work.file}: {error}") from None
    return {"images": sums.images, "bytes": work.made.stat().st_size, "sums": asdict(sums), "bad": bad}


class _StopError(Exception):
    """The first process wants to end."""


def _keep(work: Work, record: dict[str, Any]) -> None:
    """Gives a shard its name, and writes its record."""
    write_atomically(work.file, lambda temporary: os.replace(work.made, temporary))
    write_json(work.record, record)


def _convert(path: Path, size: int, quality: int, sums: ColorSums) -> bytes:
    """The bytes to store of one image; its pixels are added to ``sums``."""
    try:
        original = path.read_bytes()
    except OSError as error:
        raise BadImageError(f"{type(error).__name__}: {error.strerror}") from None
    image = decode(original)
    resized = resize_short(image, size)
    contents = original if resized is image else encode(resized, quality)
    sums.add(resized)
    return contents


def _write_shard(path: Path, classes: tuple[str, ...], rows: Iterator[dict[str, Any]]) -> None:
    """An Arrow stream, as ``datasets`` maps it into memory."""
    import pyarrow as pa
    from datasets import ClassLabel, Features, Image, Value

    columns = {"image": Image(), "label": ClassLabel(names=list(classes)), "name": Value("string")}
    schema = Features({**columns, "crc": Value("uint32")}).arrow_schema
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        batch: list[dict[str, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == ROWS:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
                batch = []
        if batch:
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))


def _finish(store: Path, splits: dict[str, Listing], works: dict[str, list[Work]], size: int) -> Prepared:
    """Statistics, list of bad images, index."""
    bad: list[tuple[str, str]] = []
    held: dict[str, tuple[Shard, ...]] = {}
    sums = ColorSums()
    for split, shards in works.items():
        entries = []
        for work in shards:
            record = _read_record(work.record)
            bad.extend(record["bad"])
            if record["images"]:
                file = work.file.relative_to(store).as_posix()
                entries.append(Shard(file, record["images"], record["bytes"]))
            if split == "train":
                sums.merge(record["sums"])
        held[split] = tuple(entries)
        _check_every_class(splits[split], bad)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("image", "reason"), *bad])
    write_text(store / BAD, text.getvalue())
    index = Index(next(iter(splits.values())).classes, size, held)
    if "train" in splits:
        sums.statistics(index.fingerprint("train")).save(store / STATISTICS)
    write_json(store / INDEX, index.to_json())
    for leftover in store.rglob(f"*{TEMPORARY}"):
        leftover.unlink(missing_ok=True)
    ignored = [str(listing.root / name) for listing in splits.values() for name in listing.ignored]
    return Prepared(sum(shard.images for shards in held.values() for shard in shards), bad, ignored)


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = read_json(path)
        bad = [(str(image), str(reason)) for image, reason in record["bad"]]
        sums = ColorSums(**record["sums"])
        return {"images": int(record["images"]), "bytes": int(record["bytes"]), "bad": bad, "sums": sums}
    except DAMAGE as error:
        raise UserError(f"{path} is damaged ({error}): remove it and run the same again") from None


def _check_every_class(listing: Listing, bad: list[tuple[str, str]]) -> None:
    """An error that names a class all of whose images are bad."""
    lost = {path for path, _ in bad}
    if not lost:
        return
    good = {name.partition("/")[0] for name in listing.names if str(listing.root / name) not in lost}
    for name in listing.classes:
        if name not in good:
            raise UserError(f"class folder {listing.root / name} has no image that can be read: {_reason(bad, name)}")


def _reason(bad: list[tuple[str, str]], name: str) -> str:
    return next(f"{path}: {reason}" for path, reason in bad if Path(path).parent.name == name)
