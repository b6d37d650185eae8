"""Makes the shards of a store on several processes.

A worker process writes a shard under a temporary name of its own. The main process syncs the finished shard to the
disk, renames it and writes its table and its record. A shard with a record is done.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from epitomic.data.photographs.arrow import locate, write_shard
from epitomic.data.photographs.color import ColorSums
from epitomic.data.photographs.table import Table
from epitomic.support.errors import UserError
from epitomic.support.files import (
    TEMPORARY,
    check_seal,
    read_checked,
    read_json,
    sha256,
    write_atomically,
    write_sealed,
)
from epitomic.support.images import BadImageError, decode, encode, is_plain, read_bytes, resize_short


@dataclass(frozen=True)
class Storage:
    """How images are stored.

    Attributes:
        size: Short side in pixels.
        quality: JPEG quality, from 1 to 100.
        subsampling: Resolution of the colours, one of `support.images.SUBSAMPLINGS`.
    """

    size: int = 256
    quality: int = 95
    subsampling: str = "4:4:4"


@dataclass(frozen=True)
class Work:
    """One shard to make: the file, its record, and the images that go into it."""

    root: Path  # folder that holds the class folders
    file: Path
    record: Path
    names: tuple[str, ...]  # CLASS/IMAGE of each image
    labels: tuple[int, ...]  # class number of each image
    classes: tuple[str, ...]  # in the order of the labels
    storage: Storage


@dataclass(frozen=True)
class Made:
    """What is known of a finished shard."""

    bytes: int  # size of the shard
    sums: ColorSums
    bad: list[tuple[str, str]]  # path and reason of each image that could not be read
    table: Table  # of the images in the shard
    temporary: Path = field(default_factory=Path)  # where the shard is until it is renamed

    def write(self, record: Path) -> None:
        """Writes the table, and then the record, which says that the shard is done."""
        contents = self.table.to_bytes()
        write_atomically(record.with_suffix(".safetensors"), lambda path: path.write_bytes(contents))
        table = {"bytes": len(contents), "sha256": sha256(contents)}
        write_sealed(record, {"bytes": self.bytes, "sums": asdict(self.sums), "bad": self.bad, "table": table})

    @classmethod
    def read(cls, record: Path) -> Made:
        """Reads what `write` wrote.

        Raises:
            UserError: If one of the two files is missing or damaged.
        """
        values = check_seal(record, read_json(record))
        try:
            path, table = record.with_suffix(".safetensors"), values["table"]
            contents = read_checked(path, table["bytes"], table["sha256"])
            bad = [(str(image), str(reason)) for image, reason in values["bad"]]
            return cls(int(values["bytes"]), ColorSums(**values["sums"]), bad, Table.from_bytes(contents, str(path)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{record} is damaged ({error}): remove it and repeat the command") from None

    @classmethod
    def is_done(cls, work: Work) -> bool:
        """Whether a shard is there and has a record. A damaged record counts as none: the shard is made again."""
        try:
            return cls.read(work.record).bytes == work.file.stat().st_size
        except (UserError, OSError):
            return False


def make_shards(todo: list[Work], workers: int, report: Callable[[int, int], None]) -> None:
    """Makes the shards; calls ``report`` now and then with the numbers of finished and of bad images."""
    import datasets.features  # noqa: F401  # imported once, before the processes that need it start
    import PIL.Image
    import pyarrow as pa  # noqa: F401

    PIL.Image.preinit()
    with Workers(max(1, min(workers, len(todo)))) as pool:
        works = {pool.submit(_make_shard, work): work for work in todo}
        waiting = set(works)
        while waiting:
            ready, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in ready:
                work, made = works[future], future.result()
                write_atomically(work.file, partial(os.replace, made.temporary))
                made.write(work.record)
            report(*pool.counts[:])


class Workers(ProcessPoolExecutor):
    """Processes that stop when the block ends, whatever the reason, and that end when this process dies.

    Each worker has the reading end of a pipe. Only this process has the writing end. If it dies, even by SIGKILL, the
    system closes the pipe, and the workers read an end of file. This works under every start method.
    """

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context()
        self.counts, self.stop = context.Array("q", 2), context.Event()  # images done, bad images
        self.pipe = context.Pipe(duplex=False)
        super().__init__(count, context, initializer=_begin_worker, initargs=(self.counts, self.stop, *self.pipe))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self.stop.set()
        self.shutdown(cancel_futures=True)
        for end in self.pipe:
            end.close()
        if isinstance(error, BrokenProcessPool):
            raise UserError("a process was killed, perhaps for lack of memory: repeat with fewer --workers") from None


_counts: Any = None  # images done and bad images, over all processes; set in each of them
_stop: Any = None


def _begin_worker(counts: Any, stop: Any, reading: Any, writing: Any) -> None:
    global _counts, _stop
    _counts, _stop = counts, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process, which then sets `stop`
    writing.close()  # or the pipe would stay open as long as this process lives
    threading.Thread(target=_end_with_parent, args=(reading,), daemon=True).start()


def _end_with_parent(reading: Any) -> None:
    """Waits for the end of file on the pipe, and ends this process."""
    try:
        reading.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)


def _make_shard(work: Work) -> Made:
    """Writes a shard under a temporary name; raises `_StopError` if `_stop` is set."""
    sums = ColorSums()
    bad: list[tuple[str, str]] = []

    def rows() -> Iterator[tuple[bytes, int, str]]:
        for name, label in zip(work.names, work.labels, strict=True):
            if _stop.is_set():
                raise StoppedError
            path, bad_before = work.root / name, len(bad)
            try:
                contents = _convert(path, work.storage, sums)
                yield contents, label, os.fsencode(name).decode(errors="replace")
            except BadImageError as error:
                bad.append((os.fsencode(path).decode(errors="replace"), str(error)))
            with _counts.get_lock():
                _counts[0] += 1
                _counts[1] += len(bad) - bad_before

    # Several processes, perhaps on several machines, may make the same shard: each has a file of its own.
    temporary = work.file.with_suffix(f".{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        write_shard(temporary, work.classes, rows())
        return Made(temporary.stat().st_size, sums, bad, locate(temporary), temporary)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(f"cannot write {work.file}: {error}") from None
        raise


class StoppedError(Exception):
    """Raised when the first process is to end."""


def _convert(path: Path, storage: Storage, sums: ColorSums) -> bytes:
    """Returns the bytes to store for one image, and adds its pixels to ``sums``."""
    original = read_bytes(path)
    image = decode(original)
    resized = resize_short(image, storage.size)
    kept = resized is image and is_plain(original)
    contents = original if kept else encode(resized, storage.quality, storage.subsampling)
    sums.add(resized)
    return contents
