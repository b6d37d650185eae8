"""Tables of images and labels: CSV files with paths, and Parquet files or Arrow tables with paths or image bytes."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from epitomic.data.own.listing import SPLIT_NAMES, Files, Listed, file_stamp
from epitomic.support.console import counted
from epitomic.support.errors import UserError
from epitomic.support.images import BadImageError

IMAGE_COLUMNS = ("image", "img", "file_name", "filename", "file", "path", "image_path", "image_file")
LABEL_COLUMNS = ("label", "class", "category", "target", "class_name", "labels")
SHOWN = 3  # rows that an error names
LONGEST = 80  # characters of a name in an error
DELIMITERS = ",;\t|"


def list_csv(path: Path, image_column: str | None = None, label_column: str | None = None) -> Listed:
    """Lists the images that a CSV file names; paths are relative to its folder."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            mark = max(DELIMITERS, key=head.count)
            rows = [*csv.DictReader(file, delimiter=mark)]
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if not rows:
        raise UserError(f"{path} has no rows: it needs a line of column names, then one line for each image")
    columns = [name for name in rows[0] if name is not None]
    image, label = choose_columns(path, columns, image_column, label_column)
    return _listed(path, [row[image] or "" for row in rows], [row[label] or "" for row in rows], _split_values(rows))


def _split_values(rows: Sequence[Mapping[str, Any]]) -> list[str | None]:
    return [SPLIT_NAMES.get(str(row.get("split") or "").strip().lower()) for row in rows]


def _listed(path: Path, images: Sequence[str], labels: Sequence[str], splits: Sequence[str | None]) -> Listed:
    """Returns the listing of files that a table names."""
    paths = [str(path.parent / image.strip()) for image in images]
    missing = [
        f"row {number}: {image[:LONGEST]!r}"
        for number, (image, file) in enumerate(zip(images, paths, strict=True), start=1)
        if not image.strip() or not os.path.isfile(file)  # Path.is_file raises an error if the name is too long
    ]
    if missing:
        raise UserError(f"{path} has {counted(len(missing), 'label')} without an image file: {_some(missing)}")
    return Listed(path.stem, str(path.resolve()), Files(paths), check_labels(path, labels), splits)


def check_labels(path: Path | str, labels: Sequence[str]) -> list[str]:
    """Returns the labels without spaces around them, or raises an error that names the rows without a label."""
    trimmed = [label.strip() for label in labels]
    empty = [f"row {number}" for number, label in enumerate(trimmed, start=1) if not label]
    if empty:
        raise UserError(f"{path} has {counted(len(empty), 'image')} without a label: {_some(empty)}")
    return trimmed


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:SHOWN]) + (f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else "")


def choose_columns(
    path: Path | str, columns: Sequence[str], image: str | None = None, label: str | None = None
) -> tuple[str, str]:
    """Returns the columns of images and labels: the ones named, or else the usual names."""
    found = []
    for what, named, usual in (("image", image, IMAGE_COLUMNS), ("label", label, LABEL_COLUMNS)):
        lower = {column.strip().lower(): column for column in reversed(columns)}
        column = named if named in columns else None if named else next((lower[n] for n in usual if n in lower), None)
        if column is None:
            wanted = repr(named) if named else "for the " + what
            raise UserError(
                f"{path} has no column {wanted}: it has {', '.join(columns)}; name one with --data.{what}-column"
            )
        found.append(column)
    return found[0], found[1]


class Rows:
    """Images in a column of an Arrow table, each as bytes or as a struct with ``bytes`` or ``path``.

    Args:
        column: The column, a pyarrow array or a list of them.
        title: Name of the table, for messages.
        stamp: Text that changes with the table.
        folder: Folder that paths are relative to.
    """

    def __init__(self, column: Any, title: str, stamp: str, folder: Path) -> None:
        self.column, self.title, self.table_stamp, self.folder = column, title, stamp, folder

    def __len__(self) -> int:
        return len(self.column)

    def name(self, index: int) -> str:
        """Returns the number of the row, and the path if the table has one."""
        value = self._value(index, without="bytes")
        path = value.get("path") if isinstance(value, dict) else None
        return f"{self.title}: row {index + 1}" + (f" ({path})" if path else "")

    def contents(self, index: int) -> bytes:
        """Returns the bytes of an image, or reads the file that the table names."""
        value = self._value(index)
        if isinstance(value, dict):
            value = value["bytes"] if value.get("bytes") is not None else value.get("path")
        if isinstance(value, bytes):
            return value
        path = self.folder / str(value)
        if not value or not os.path.isfile(path):
            raise BadImageError(f"there is no file {str(value)[:LONGEST]!r}" if value else "it has no image")
        return path.read_bytes()

    def stamp(self, index: int) -> str:
        """Returns the text of the whole table."""
        return self.table_stamp

    def _value(self, index: int, without: str | None = None) -> Any:
        value = self.column[index]
        if without and hasattr(value, "keys"):
            return {key: value[key].as_py() for key in value if key != without}
        return None if without else value.as_py()


def list_parquet(path: Path, image_column: str | None = None, label_column: str | None = None) -> Listed:
    """Lists the images of a Parquet file, which holds them or names their files."""
    import pyarrow as pa
    import pyarrow.parquet as parquet
    from datasets import Features

    try:
        table = parquet.read_table(path, memory_map=True)
        try:
            features: Mapping[str, Any] = Features.from_arrow_schema(table.schema)
        except Exception:  # types that datasets does not know say nothing, and the table may be sound
            features = {}
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UserError(f"cannot read {path}: {str(error).splitlines()[0][:200]}") from None
    image, label = feature_columns(path, features, table.column_names, image_column, label_column)
    labels = class_labels(path, table.column(label).to_pylist(), features.get(label))
    splits = table.column("split").to_pylist() if "split" in table.column_names else [None] * len(labels)
    given = [SPLIT_NAMES.get(str(split).lower()) for split in splits]
    column = table.column(image)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _listed(path, [value or "" for value in column.to_pylist()], labels, given)
    rows = Rows(column, path.name, file_stamp(path), path.parent)
    return Listed(path.stem, str(path.resolve()), rows, labels, given)


def feature_columns(
    path: Path | str,
    features: Mapping[str, Any],
    columns: Sequence[str],
    image: str | None = None,
    label: str | None = None,
) -> tuple[str, str]:
    """Returns the columns of images and labels: the ones named, or found by their features, or by the usual names."""
    from datasets import ClassLabel, Image

    images = [name for name, feature in features.items() if isinstance(feature, Image)]
    labels = [name for name, feature in features.items() if isinstance(feature, ClassLabel)]
    image = image or (images[0] if len(images) == 1 else None)
    label = label or (labels[0] if len(labels) == 1 else None)
    return choose_columns(path, columns, image, label)


def class_labels(path: Path | str, values: Sequence[Any], feature: Any) -> list[str]:
    """Returns the class name of each row; ``feature`` may be a ``ClassLabel``, which has the names."""
    names = getattr(feature, "names", None)
    if names is not None:
        values = [names[value] if value is not None and 0 <= value < len(names) else "" for value in values]
    return check_labels(path, ["" if value is None else str(value) for value in values])
