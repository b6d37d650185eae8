"""Makes a store (`store`) from class folders.

Each split is sorted by name and cut into shards of consecutive images. Several processes make the shards (`shards`).
Every shard that is safely on the disk gets a record: its number of images, the images that could not be read, and its
colour sums. A shard with a record is done, so a repeated call makes only the missing ones.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epitomic.data.photographs.color import ColorSums
from epitomic.data.photographs.folders import Listing, list_splits
from epitomic.data.photographs.shards import Work, make_shards
from epitomic.data.photographs.store import BAD, INDEX, PLAN, STATISTICS, Index, Shard
from epitomic.support.console import Progress
from epitomic.support.errors import UserError
from epitomic.support.files import TEMPORARY, read_json, write_json, write_text

RECORDS = "records"
MAXIMUM_SHARDS = 256  # per split: enough to share out, few enough to keep open
MINIMUM_IMAGES = 128  # per shard


@dataclass(frozen=True)
class Prepared:
    """The result of `prepare`."""

    images: int  # number of images in the store
    bad: list[tuple[str, str]]  # path and reason of each image that could not be read
    ignored: list[str]  # paths of files and folders that are not CLASS/IMAGE


def prepare(
    source: Path, store: Path, *, size: int = 256, quality: int = 95, workers: int | None = None, quiet: bool = True
) -> Prepared:
    """Makes a store, or the part of it that is missing.

    Args:
        source: Class folders; see `folders.list_splits`.
        store: A new folder, or the store that an interrupted call left.
        size: Short side of the stored images in pixels.
        quality: JPEG quality of the stored images. JPEG, PNG and WebP files that already have this size are
            copied unchanged, unless an orientation tag turns them.
        workers: Number of processes (default: one per core).
        quiet: Show no progress.

    Raises:
        UserError: If the splits have different classes, if ``store`` was made from other images or with other options,
            or if a class has no readable image.
    """
    splits = list_splits(source)
    _begin(store, splits, {"format": 1, "size": size, "quality": quality})
    works = {split: list(_deal(store, split, listing, size, quality)) for split, listing in splits.items()}
    todo = [work for shards in works.values() for work in shards if not _is_done(work)]
    total = sum(len(listing.names) for listing in splits.values())
    before = total - sum(len(work.names) for work in todo)
    with Progress(total, done=before, unit="images", quiet=quiet) as progress:

        def report(done: int, bad: int) -> None:
            text = f"{before + done:,}/{total:,} images" + (f"  {bad} bad" if bad else "")
            progress.update(text, before + done)

        make_shards(todo, workers or os.cpu_count() or 1, report)
    return _finish(store, splits, works, size)


def _begin(store: Path, splits: dict[str, Listing], options: dict[str, Any]) -> None:
    """Writes the plan of a new store, or checks that an existing store has the same plan."""
    plan = {**options, "source": {split: listing.fingerprint for split, listing in splits.items()}}
    if (store / PLAN).is_file():
        if read_json(store / PLAN) != plan:
            raise UserError(
                f"{store} was made from other images or with another --size or --quality: name a new folder"
            )
    elif store.exists() and (not store.is_dir() or any(store.iterdir())):
        raise UserError(f"{store} is not empty and not a store: name another folder")
    else:
        write_json(store / PLAN, plan)


def _deal(store: Path, split: str, listing: Listing, size: int, quality: int) -> Iterator[Work]:
    """Yields the shards of a split."""
    per_shard = max(MINIMUM_IMAGES, -(-len(listing.names) // MAXIMUM_SHARDS))
    labels = listing.labels.tolist()
    for number, first in enumerate(range(0, len(listing.names), per_shard)):
        part = slice(first, first + per_shard)
        name = f"{split}/shard-{number:05d}"
        file, record = store / f"{name}.arrow", store / RECORDS / f"{name}.json"
        names = listing.names[part]
        yield Work(listing.root, file, record, names, tuple(labels[part]), listing.classes, size, quality)


def _is_done(work: Work) -> bool:
    try:
        return bool(read_json(work.record)["bytes"] == work.file.stat().st_size)
    except (UserError, OSError, KeyError):
        return False


def _finish(store: Path, splits: dict[str, Listing], works: dict[str, list[Work]], size: int) -> Prepared:
    """Writes the statistics, the list of bad images and, last, the index."""
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
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it and repeat the command") from None


def _check_every_class(listing: Listing, bad: list[tuple[str, str]]) -> None:
    """Raises an error that names a class if all its images are bad."""
    reasons = dict(bad)
    good = {name.partition("/")[0] for name in listing.names if str(listing.root / name) not in reasons}
    for name in listing.classes:
        if name not in good:
            path = next(path for path in reasons if Path(path).parent.name == name)
            raise UserError(
                f"class folder {listing.root / name} has no image that can be read: {path}: {reasons[path]}"
            )
