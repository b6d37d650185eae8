"""Makes a store (`store`) from class folders.

Each split is sorted by name and cut into shards of consecutive images. Several processes make the shards (`shards`).
A repeated call makes only the shards that are missing. So a call for one part of the shards (``part``) needs nothing of
the others, and the call that joins them is the one without ``part``.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from epitomic.data.photographs.color import ColorSums
from epitomic.data.photographs.folders import Listing, list_splits
from epitomic.data.photographs.shards import Made, Storage, Work, make_shards
from epitomic.data.photographs.store import (
    BAD,
    FORMAT,
    INDEX,
    PLAN,
    STATISTICS,
    TABLE,
    Checked,
    Index,
    Shard,
    Split,
    fingerprint,
    read_index,
)
from epitomic.data.photographs.table import Table
from epitomic.support.console import Progress
from epitomic.support.errors import UserError
from epitomic.support.files import TEMPORARY, read_json, write_json, write_text

RECORDS = "records"
MAXIMUM_SHARDS = 256  # per split: enough to share out, few enough to keep open
MINIMUM_IMAGES = 128  # per shard


@dataclass(frozen=True)
class Prepared:
    """The result of `prepare`."""

    images: int  # number of images in the store, or in the part
    bad: list[tuple[str, str]]  # path and reason of each image that could not be read
    ignored: list[str]  # paths of files and folders that are not CLASS/IMAGE


def prepare(
    source: Path,
    store: Path,
    *,
    size: int = 256,
    quality: int = 95,
    subsampling: str = "4:4:4",
    part: tuple[int, int] | None = None,
    workers: int | None = None,
    quiet: bool = True,
) -> Prepared:
    """Makes a store, or the part of it that is missing.

    Args:
        source: Class folders; see `folders.list_splits`.
        store: A new folder, or the store that an interrupted call left.
        size: Short side of the stored images in pixels.
        quality: JPEG quality of the stored images. JPEG, PNG and WebP files that already have this size are
            copied unchanged, unless an orientation tag turns them.
        subsampling: Resolution of the colours in JPEG: ``"4:4:4"``, ``"4:2:2"`` or ``"4:2:0"``.
        part: (i, n) makes only the i-th of n parts of the shards, counted from 1, and no index. A call without it
            joins the parts.
        workers: Number of processes (default: one per core).
        quiet: Show no progress.

    Raises:
        UserError: If the splits have different classes, if ``store`` was made from other images or with other options,
            or if a class has no readable image.
    """
    storage = Storage(size, quality, subsampling)
    with Progress(quiet=quiet) as progress:
        progress.update(f"listing the images in {source}")
        splits = list_splits(source, lambda count: progress.update(f"listing the images in {source}: {count:,}"))
        _begin(store, splits, storage)
        works = {split: list(_deal(store, split, listing, storage)) for split, listing in splits.items()}
        flat = [work for shards in works.values() for work in shards]
        mine = flat[part[0] - 1 :: part[1]] if part else flat
    looking = _told(mine, f"looking for the shards in {store} that are done", quiet)
    todo = [work for work in looking if not Made.is_done(work)]
    images, missing = (sum(len(work.names) for work in some) for some in (mine, todo))
    before, of_part = images - missing, f" of part {part[0]}/{part[1]}" if part else ""
    with Progress(images, done=before, unit="images", quiet=quiet) as progress:

        def report(done: int, bad: int) -> None:
            text = f"{before + done:,}/{images:,} images{of_part}" + (f"  {bad} bad" if bad else "")
            progress.update(text, before + done)

        if todo:
            make_shards(todo, workers or os.cpu_count() or 1, report)
    ignored = [str(listing.root / name) for listing in splits.values() for name in listing.ignored]
    if part:
        made = [Made.read(work.record) for work in _told(mine, "counting the images of the part", quiet)]
        return Prepared(sum(len(m.table) for m in made), [bad for m in made for bad in m.bad], ignored)
    count, bad = _finish(store, splits, works, size, quiet)
    return Prepared(count, bad, ignored)


def _told(works: list[Work], text: str, quiet: bool) -> Iterator[Work]:
    """Yields the shards, and shows how many images of them are done."""
    total, done = sum(len(work.names) for work in works), 0
    with Progress(total, unit="images", quiet=quiet) as progress:
        for work in works:
            yield work
            done += len(work.names)
            progress.update(f"{text}: {done:,}/{total:,} images", done)


def _begin(store: Path, splits: dict[str, Listing], storage: Storage) -> None:
    """Writes the plan of a new store, or checks that an existing store has the same plan."""
    plan = make_plan(storage, {split: listing.fingerprint for split, listing in splits.items()})
    if (store / PLAN).is_file():
        found = read_json(store / PLAN)
        if found.get("format") == 1 and (store / INDEX).is_file():
            read_index(store)  # which says how to upgrade it
        if found != plan:
            raise UserError(
                f"{store} was made from other images, by an older version, or with another --size, --quality or "
                "--subsampling: name a new folder"
            )
    elif store.exists() and (not store.is_dir() or any(path.suffix != TEMPORARY for path in store.iterdir())):
        raise UserError(f"{store} is not empty and not a store: name another folder")
    else:
        write_json(store / PLAN, plan)


def make_plan(storage: Storage, source: dict[str, str]) -> dict[str, Any]:
    """Returns what a repeated call must agree with; ``source`` has the fingerprint of each split's listing."""
    return {"format": FORMAT, **asdict(storage), "source": source}


def _deal(store: Path, split: str, listing: Listing, storage: Storage) -> Iterator[Work]:
    """Yields the shards of a split."""
    per_shard = max(MINIMUM_IMAGES, -(-len(listing.names) // MAXIMUM_SHARDS))
    labels = listing.labels.tolist()
    for number, first in enumerate(range(0, len(listing.names), per_shard)):
        part = slice(first, first + per_shard)
        name = f"{split}/shard-{number:05d}"
        file, record = store / f"{name}.arrow", store / RECORDS / f"{name}.json"
        yield Work(listing.root, file, record, listing.names[part], tuple(labels[part]), listing.classes, storage)


def _finish(
    store: Path, splits: dict[str, Listing], works: dict[str, list[Work]], size: int, quiet: bool
) -> tuple[int, list[tuple[str, str]]]:
    """Writes the tables, the statistics, the list of bad images and, last, the index; returns images and bad images."""
    bad: list[tuple[str, str]] = []
    held: dict[str, list[tuple[str, Made]]] = {}
    for split, shards in works.items():
        told = _told(shards, f"joining the shards of {split}", quiet)
        held[split] = [(work.file.relative_to(store).as_posix(), Made.read(work.record)) for work in told]
        bad.extend(entry for _, made in held[split] for entry in made.bad)
        _check_every_class(splits[split], bad)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("image", "reason"), *bad])
    write_text(store / BAD, text.getvalue())
    write_contents(store, next(iter(splits.values())).classes, size, held)
    for leftover in store.rglob(f"*{TEMPORARY}"):
        leftover.unlink(missing_ok=True)
    return sum(len(made.table) for shards in held.values() for _, made in shards), bad


def write_contents(store: Path, classes: tuple[str, ...], size: int, held: dict[str, list[tuple[str, Made]]]) -> None:
    """Writes the tables, the statistics and, last, the index; ``held`` has the shards of each split."""
    splits: dict[str, Split] = {}
    for split, found in held.items():
        full = [(file, made) for file, made in found if len(made.table)]
        contents = Table.join([made.table for _, made in full]).to_bytes()
        table = Checked.write(store, f"{split}/{TABLE}", contents)
        splits[split] = Split(table, tuple(Shard(file, len(made.table), made.bytes) for file, made in full))
    statistics = None
    if "train" in splits:
        sums = ColorSums()
        for _, made in held["train"]:
            sums.merge(made.sums)
        colors = sums.statistics(fingerprint(classes, size, splits["train"].table))
        statistics = Checked.write(store, STATISTICS, colors.to_text().encode())
    Index(classes, size, splits, statistics).write(store)


def _check_every_class(listing: Listing, bad: list[tuple[str, str]]) -> None:
    """Raises an error that names a class if all its images are bad."""
    root = os.fsencode(listing.root).decode(errors="replace")
    images = listing.labels.bincount(minlength=len(listing.classes)).tolist()
    found = [path for path, _ in bad if str(Path(path).parent.parent) == root]
    bad_images = Counter(Path(path).parent.name for path in found)
    for name, count in zip(listing.classes, images, strict=True):
        shown = os.fsencode(name).decode(errors="replace")
        if bad_images[shown] == count:
            path = next(path for path in found if Path(path).parent.name == shown)
            raise UserError(
                f"class folder {listing.root / name} has no image that can be read: {path}: {dict(bad)[path]}"
            )
