"""Upgrades a store of format 1: writes the tables and the index of format 2 beside the same shards. Decodes nothing."""

from __future__ import annotations

import os
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from epitomic.data.photographs.arrow import locate
from epitomic.data.photographs.color import ColorSums
from epitomic.data.photographs.prepare import RECORDS, make_plan, write_contents
from epitomic.data.photographs.shards import Made, Storage, Workers
from epitomic.data.photographs.store import INDEX, PLAN, STATISTICS, inside
from epitomic.support.console import Progress
from epitomic.support.errors import UserError
from epitomic.support.files import read_json, write_json


def upgrade(store: Path, *, workers: int | None = None, quiet: bool = True) -> int:
    """Upgrades a store of format 1 in place; the shards stay as they are.

    The index is written last: an interrupted upgrade leaves a store of format 1, and a repeated call finishes it.
    Format 1 had no checksum of labels and names. They are believed if each name begins with the class of its label.

    Args:
        store: The store.
        workers: Number of processes (default: one per core).
        quiet: Show no progress.

    Returns:
        The number of images.

    Raises:
        UserError: If there is no store of format 1, or it is damaged.
    """
    values = read_json(store / INDEX)
    if values.get("format") != 1:
        raise UserError(f"{store} has format {values.get('format')}: only a store of format 1 can be upgraded")
    plan = read_json(store / PLAN)
    try:
        classes, size = tuple(map(str, values["classes"])), int(values["size"])
        storage = Storage(int(plan["size"]), int(plan["quality"]))
        new_plan = make_plan(storage, {str(split): str(found) for split, found in plan["source"].items()})
        files = {
            str(split): [(inside(shard["file"]), int(shard["images"]), int(shard["bytes"])) for shard in shards]
            for split, shards in values["splits"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"{store / INDEX} or {PLAN} is damaged ({type(error).__name__}: {error})") from None
    held = _read_all(store, classes, files, workers or os.cpu_count() or 1, quiet)
    if "train" in held:
        _compare_statistics(store, [made.sums for _, made in held["train"]])
    for shards in held.values():
        for file, made in shards:
            made.write(_record(store, file))
    write_json(store / PLAN, new_plan)
    write_contents(store, classes, size, held)
    return sum(len(made.table) for shards in held.values() for _, made in shards)


def _read_all(
    store: Path, classes: tuple[str, ...], files: dict[str, list[tuple[str, int, int]]], workers: int, quiet: bool
) -> dict[str, list[tuple[str, Made]]]:
    total, done = sum(images for shards in files.values() for _, images, _ in shards), 0
    held: dict[str, list[tuple[str, Made]]] = {}
    with Progress(total, unit="images", quiet=quiet) as progress, Workers(workers) as pool:
        futures = {
            (split, file): pool.submit(_read_shard, store, file, images, size, classes)
            for split, shards in files.items()
            for file, images, size in shards
        }
        for (split, file), future in futures.items():
            try:
                made = future.result()
            except BrokenProcessPool:  # a damaged shard can crash the parser of Arrow, in a process of its own
                raise UserError(f"{store / file} or a shard after it is damaged: reading it crashed") from None
            held.setdefault(split, []).append((file, made))
            done += len(made.table)
            progress.update(f"{done:,}/{total:,} images", done)
    return held


def _compare_statistics(store: Path, parts: list[ColorSums]) -> None:
    """Raises an error unless the statistics of the records are those of the store: training must stay the same."""
    sums, values = ColorSums(), read_json(store / STATISTICS)
    for part in parts:
        sums.merge(part)
    colors = sums.statistics("") if sums.pixels else None
    if colors is None or [*values.get("mean", ())] != [*colors.mean]:
        raise UserError(f"{store / STATISTICS} does not fit the records in {store / RECORDS}: one of them is damaged")


def _record(store: Path, file: str) -> Path:
    return store / RECORDS / Path(file).with_suffix(".json")


def _read_shard(store: Path, file: str, images: int, size: int, classes: tuple[str, ...]) -> Made:
    """Finds the images of a shard, and takes its colour sums and bad images from its record."""
    path = store / file
    if not path.is_file() or path.stat().st_size != size:
        raise UserError(f"{path} is missing, truncated or altered: it should have {size} bytes")
    table = locate(path)
    problem = table.problem(len(classes), [size])
    if problem is None and len(table) != images:
        problem = f"it has {len(table)} images, not {images}"
    for index in range(len(table) if problem is None else 0):
        name, label = table.name_of(index), classes[int(table.label[index])]
        if name.partition("/")[0] != os.fsencode(label).decode(errors="replace"):
            problem = f"image {index}, {name}, has the label {label}"
            break
    if problem:
        raise UserError(f"{path} is damaged: {problem}")
    record: Any = read_json(_record(store, file))
    try:
        bad = [(str(image), str(reason)) for image, reason in record["bad"]]
        return Made(size, ColorSums(**record["sums"]), bad, table)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{_record(store, file)} is damaged ({type(error).__name__}: {error})") from None
