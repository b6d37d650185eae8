"""Makes the shards of a store on several processes.

A worker process writes a shard under a temporary name. The main process syncs the finished
shard to the disk, renames it and writes its record.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from epitomic.data.photographs.color import ColorSums
from epitomic.support.errors import UserError
from epitomic.support.files import TEMPORARY, write_atomically, write_json
from epitomic.support.images import BadImageError, decode, encode, is_plain, read_bytes, resize_short

ROWS = 64  # images in a record batch: a process holds this many in memory


@dataclass(frozen=True)
class Work:
    """One shard to make: the file, its record, and the images that go into it."""

    root: Path  # folder that holds the class folders
    file: Path
    record: Path
    names: tuple[str, ...]  # CLASS/IMAGE of each image
    labels: tuple[int, ...]  # class number of each image
    classes: tuple[str, ...]  # in the order of the labels
    size: int  # short side of the stored images in pixels
    quality: int  # of JPEG

    @property
    def temporary(self) -> Path:
        """Temporary path of the shard, until it is complete."""
        return self.file.with_suffix(f".made{TEMPORARY}")


def make_shards(todo: list[Work], workers: int, report: Callable[[int, int], None]) -> None:
    """Makes the shards; calls ``report`` now and then with the numbers of finished and of bad images."""
    import datasets.features  # noqa: F401  # imported once, before the processes that need it start
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
                work, record = works[future], future.result()
                write_atomically(work.file, partial(os.replace, work.temporary))
                write_json(work.record, record)
            report(*counts[:])
    except BrokenProcessPool:
        raise UserError("a process was killed, perhaps for lack of memory: repeat with fewer --workers") from None
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


_counts: Any = None  # images done and bad images, over all processes; set in each of them
_stop: Any = None


def _begin_worker(counts: Any, stop: Any) -> None:
    global _counts, _stop
    _counts, _stop = counts, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process, which then sets `stop`


def _make_shard(work: Work) -> dict[str, Any]:
    """Writes a shard under its temporary name and returns its record; the record is empty if `_stop` is set."""
    sums = ColorSums()
    bad: list[tuple[str, str]] = []

    def rows() -> Iterator[dict[str, Any]]:
        for name, label in zip(work.names, work.labels, strict=True):
            if _stop.is_set():
                raise _StopError
            path, bad_before = work.root / name, len(bad)
            try:
                contents = _convert(path, work.size, work.quality, sums)
                text = os.fsencode(name).decode(errors="replace")
                image = {"bytes": contents, "path": None}
                yield {"image": image, "label": label, "name": text, "crc": zlib.crc32(contents)}
            except BadImageError as error:
                bad.append((os.fsencode(path).decode(errors="replace"), str(error)))
            with _counts.get_lock():
                _counts[0] += 1
                _counts[1] += len(bad) - bad_before

    try:
        work.temporary.parent.mkdir(parents=True, exist_ok=True)
        _write_shard(work.temporary, work.classes, rows())
    except _StopError:
        work.temporary.unlink(missing_ok=True)
        return {}
    except OSError as error:
        work.temporary.unlink(missing_ok=True)
        raise UserError(f"cannot write {work.file}: {error}") from None
    return {"images": sums.images, "bytes": work.temporary.stat().st_size, "sums": asdict(sums), "bad": bad}


class _StopError(Exception):
    """The first process wants to end."""


def _convert(path: Path, size: int, quality: int, sums: ColorSums) -> bytes:
    """Returns the bytes to store for one image, and adds its pixels to ``sums``."""
    original = read_bytes(path)
    image = decode(original)
    resized = resize_short(image, size)
    contents = original if resized is image and is_plain(original) else encode(resized, quality)
    sums.add(resized)
    return contents


def _write_shard(path: Path, classes: tuple[str, ...], rows: Iterator[dict[str, Any]]) -> None:
    """Writes an Arrow stream that ``datasets`` can map into memory."""
    import pyarrow as pa
    from datasets import ClassLabel, Features, Image, Value

    columns = {"image": Image(), "label": ClassLabel(names=list(classes)), "name": Value("string")}
    schema = Features({**columns, "crc": Value("uint32")}).arrow_schema
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        while batch := list(itertools.islice(rows, ROWS)):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
