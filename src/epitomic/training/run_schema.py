"""What the files of a run folder must hold. Each file is checked when it is read, before its values are used.

Files that this version wrote also have a checksum (`support.files.read_sealed`). Files of older versions have none.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from epitomic.evaluation import OTHER_WAYS
from epitomic.support.errors import UserError
from epitomic.support.schema import (
    COUNT,
    NUMBER,
    SECONDS,
    SHARE,
    TEXT,
    TEXTS,
    Entry,
    Schema,
    check_schema,
    is_count,
    is_number,
    is_share,
    maps_text_to,
    or_none,
)

COLUMNS = (
    *("epoch", "step", "lr", "train_loss", "train_error"),
    *("val_loss", "val_error", "val_top5_error", "best_epoch"),
)
WHOLE = ("epoch", "step", "best_epoch")  # columns of whole numbers
MOST_CLASSES = 10**6  # each gets a name
SHARES = ("train_error", "val_error", "val_top5_error")


def _is_confusion(value: Any) -> bool:
    rows = isinstance(value, list) and all(isinstance(row, list) and len(row) == len(value) for row in value)
    return rows and all(is_count(number) for row in value for number in row)


def _is_class(value: Any) -> bool:
    if not isinstance(value, dict) or not is_count(value.get("images")):
        return False
    return all(or_none(is_share)(value.get(key)) for key in ("recall", "precision"))


REPORT: Schema = {  # what `Scores.report` returns
    "images": Entry(lambda value: is_count(value) and value > 0, "a whole number of at least 1"),
    "error": SHARE,
    "errors": COUNT,
    "top1": SHARE.optional(),
    "top5": SHARE.optional(),
    "loss": NUMBER.optional(),
    "classes": Entry(maps_text_to(_is_class), "an object of figures by class", needed=False),
    "confusion": Entry(_is_confusion, "a square table of counts", needed=False),
    "ranks": Entry(lambda value: isinstance(value, str) and set(value) <= set("-12345"), "text of -12345", False),
}
RESULTS: Schema = {
    "validation_error": SHARE,
    "validation_loss": NUMBER.optional(),
    "best_epoch": COUNT,
    "epochs": Entry(lambda value: is_count(value) and value > 0, "a whole number of at least 1"),
    "parameters": COUNT,
    "wall_seconds": SECONDS,
    "cpu_seconds": SECONDS.optional(),
    "epoch_seconds": SECONDS.optional(),
    "bad_images": TEXTS.optional(),
    "test": REPORT,
    **dict.fromkeys(OTHER_WAYS, REPORT),
}
FACTS: Schema = {
    "command": TEXT.optional(),
    "commit": Entry(or_none(TEXT.fits), "text or null", needed=False),
    "versions": TEXTS.optional(),
    "machine": Entry(lambda value: isinstance(value, dict), "an object", needed=False),
    "seed": COUNT.optional(),
    "started": TEXT.optional(),
    "finished": TEXT.optional(),
    "wall_seconds": SECONDS.optional(),
    "images": TEXT.optional(),
    "sessions": Entry(
        lambda value: isinstance(value, list) and all(isinstance(one, dict) for one in value),
        "a list of objects",
        needed=False,
    ),
}
CONFIG: Schema = {
    "model": TEXT.optional(),
    "dataset": Entry(or_none(TEXT.fits), "text or null", needed=False),
    "num_classes": Entry(
        lambda value: is_count(value) and value <= MOST_CLASSES, f"a whole number up to {MOST_CLASSES}", needed=False
    ),
    "in_channels": COUNT.optional(),
    "image_size": COUNT.optional(),
    "classes": Entry(
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
        "a list of texts",
        needed=False,
    ),
    "views": TEXT.optional(),
}

TRANSFER: Schema = {
    **dict.fromkeys(("data", "features", "kernel"), TEXT),
    **dict.fromkeys(("numbers", "train_per_class", "images", "classes"), COUNT),
    "mean": SHARE,
    "standard_deviation": Entry(or_none(is_number), "a number or null"),
    "accuracies": Entry(lambda value: isinstance(value, list) and all(map(is_share, value)), "a list of shares"),
    "facts": FACTS,
}


def check_results(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns the contents of results.json, checked."""
    check_schema(values, RESULTS, str(path))
    for way in ("test", *OTHER_WAYS):
        report = values.get(way, {})
        names, rows, ranks = (report.get(key) for key in ("classes", "confusion", "ranks"))
        if names is not None and rows is not None and len(names) != len(rows):
            raise UserError(f"{path}: {way}: its 'confusion' has {len(rows)} rows for {len(names)} classes")
        if ranks is not None and len(ranks) != report["images"]:
            raise UserError(f"{path}: {way}: its 'ranks' has {len(ranks)} places for {report['images']} images")
    return values


def check_facts(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns the contents of run.json, checked."""
    check_schema(values, FACTS, str(path))
    return values


def check_config(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns the contents of config.json, after a check of the entries that reports and tables read."""
    check_schema(values, CONFIG, str(path))
    return values


def check_transfer(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns the contents of transfer.json, checked: an object of entries."""
    for key in values:
        check_schema(values, {key: TRANSFER}, str(path))
    return values


def parse_metrics(contents: bytes, path: Path) -> list[dict[str, float]]:
    """Returns the rows of metrics.csv, one for each epoch.

    Raises:
        UserError: If a column is missing, or a value does not fit.
    """
    try:
        rows = list(csv.reader(io.StringIO(contents.decode("utf-8"), newline=""), strict=True))
    except (ValueError, csv.Error) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if not rows or not {"epoch"} < set(rows[0]) <= set(COLUMNS) or len(set(rows[0])) < len(rows[0]):
        raise UserError(f"cannot read {path}: its first line must name columns of {', '.join(COLUMNS)}")
    return [_metrics_row(rows[0], row, epoch, f"{path}, line {epoch + 2}") for epoch, row in enumerate(rows[1:])]


def _metrics_row(columns: list[str], row: list[str], epoch: int, where: str) -> dict[str, float]:
    if len(row) != len(columns):
        raise UserError(f"{where} has {len(row)} values for {len(columns)} columns")
    numbers: dict[str, float] = {}
    for name, text in zip(columns, row, strict=True):
        try:
            numbers[name] = float(text)
        except ValueError:
            raise UserError(f"{where}: its {name} must be a number, got {text[:40]!r}") from None
    check_row(numbers, epoch, where)
    return numbers


def check_row(numbers: dict[str, Any], epoch: int, where: str) -> None:
    """Raises an error unless these are the figures of epoch number ``epoch``, counted from 0."""
    for name, value in numbers.items():
        whole = name not in WHOLE or (is_number(value) and value >= 0 and value == int(value))
        if not is_number(value) or not whole or (name in SHARES and not is_share(value)):
            raise UserError(f"{where}: its {name} cannot be {value!r}")
    if numbers["epoch"] != epoch:
        raise UserError(f"{where}: its epoch must be {epoch}, got {numbers['epoch']:g}")
