"""Hugging Face data sets, on disk or by name. Columns are found by their features. No code of a data set is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from epitomic.data.own.listing import SPLIT_NAMES, Blobs, Listed
from epitomic.data.own.tables import Rows, class_labels, feature_columns
from epitomic.support.errors import UserError

PREFIX = "hf://"
NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_saved(folder: Path) -> bool:
    """Whether ``datasets`` has saved a data set in this folder."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def is_hub_name(text: str) -> bool:
    """Whether a text can be the name of a data set on the hub: ``user/name``, or ``hf://name``."""
    return text.startswith(PREFIX) or NAME.fullmatch(text) is not None


def list_saved(folder: Path, image_column: str | None = None, label_column: str | None = None) -> Listed:
    """Lists a data set that ``datasets`` saved."""
    from datasets import load_from_disk

    try:
        found = load_from_disk(str(folder))
    except Exception as error:  # damaged files raise errors of many kinds
        raise UserError(f"cannot read the data set {folder}: {_line(error)}") from None
    return _listed(found, folder.resolve().name, str(folder.resolve()), folder, image_column, label_column)


def list_named(name: str, image_column: str | None = None, label_column: str | None = None) -> Listed:
    """Lists a data set on the hub, which is downloaded if it is not here yet."""
    from datasets import load_dataset

    short = name.removeprefix(PREFIX)
    try:
        found = load_dataset(short)
    except Exception as error:  # from the network, the hub or its files
        raise UserError(
            f"no folder or file {name}, and no data set of this name can be loaded: {_line(error)}"
        ) from None
    return _listed(found, short.rpartition("/")[2], f"{PREFIX}{short}", Path(), image_column, label_column)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _listed(
    found: Any, title: str, root: str, folder: Path, image_column: str | None, label_column: str | None
) -> Listed:
    from datasets import DatasetDict

    parts = dict(found) if isinstance(found, DatasetDict) else {"train": found}
    known = {name: SPLIT_NAMES[name.lower()] for name in parts if name.lower() in SPLIT_NAMES}
    if "train" not in known.values():
        raise UserError(f"{root} has no split 'train': it has {', '.join(parts) or 'none at all'}")
    blobs: list[Rows] = []
    labels: list[str] = []
    splits: list[str | None] = []
    for name, split in known.items():
        part = parts[name].flatten_indices() if parts[name]._indices is not None else parts[name]
        image, label = feature_columns(root, part.features, part.column_names, image_column, label_column)
        table = part.data.table
        blobs.append(Rows(table.column(image), f"{title} {name}", str(part._fingerprint), folder))
        labels += class_labels(root, table.column(label).to_pylist(), part.features[label])
        splits += [split if len(known) > 1 else None] * len(part)
    return Listed(title, root, Joined(blobs), labels, splits)


class Joined:
    """The images of several tables, one table after another.

    Args:
        parts: The tables.
    """

    def __init__(self, parts: list[Rows]) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def _place(self, index: int) -> tuple[Blobs, int]:
        for part in self.parts:
            if index < len(part):
                return part, index
            index -= len(part)
        raise IndexError(index)

    def name(self, index: int) -> str:
        """Returns the name of an image in its table."""
        part, place = self._place(index)
        return part.name(place)

    def contents(self, index: int) -> bytes:
        """Returns the bytes of an image."""
        part, place = self._place(index)
        return part.contents(place)

    def stamp(self, index: int) -> str:
        """Returns the stamp of the image's table."""
        part, place = self._place(index)
        return part.stamp(place)
