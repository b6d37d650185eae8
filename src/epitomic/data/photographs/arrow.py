"""Shards as Arrow streams, which anyone can open with ``datasets.Dataset.from_file``.

Only `epitomic prepare` writes and parses them. Training reads an image's bytes at their offset in the file (`table`).
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path

from epitomic.data.photographs.table import Table
from epitomic.support.errors import UserError

ROWS = 64  # images in a record batch: a process holds this many in memory


def write_shard(path: Path, classes: tuple[str, ...], rows: Iterator[tuple[bytes, int, str]]) -> None:
    """Writes the contents, label and name of each image as an Arrow stream."""
    import pyarrow as pa
    from datasets import ClassLabel, Features, Image, Value

    columns = {"image": Image(), "label": ClassLabel(names=list(classes)), "name": Value("string")}
    schema = Features({**columns, "crc": Value("uint32")}).arrow_schema
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        while batch := list(itertools.islice(rows, ROWS)):
            values = [
                {"image": {"bytes": contents, "path": None}, "label": label, "name": name, "crc": zlib.crc32(contents)}
                for contents, label, name in batch
            ]
            writer.write_batch(pa.RecordBatch.from_pylist(values, schema))


def locate(path: Path) -> Table:
    """Finds the bytes of each image in a shard.

    Raises:
        UserError: If the file is not a shard. A damaged shard can also crash Arrow's parser.
    """
    import pyarrow as pa

    columns: dict[str, list[int]] = {key: [] for key in ("label", "offset", "length", "crc")}
    names: list[str] = []
    try:
        with pa.memory_map(str(path)) as file:
            start = file.read_buffer(1).address
            file.seek(0)
            for batch in pa.ipc.open_stream(file):
                batch.validate(full=True)
                contents = batch.column("image").field("bytes")
                _, ends, data = contents.buffers()
                if contents.offset or contents.null_count or not len(contents):
                    raise UserError(f"{path} is damaged: an image has no bytes")
                places = memoryview(ends).cast("i")[: len(contents) + 1].tolist()
                columns["offset"] += [data.address - start + place for place in places[:-1]]
                columns["length"] += [end - place for place, end in itertools.pairwise(places)]
                columns["label"] += batch.column("label").to_pylist()
                names += batch.column("name").to_pylist()
                columns["crc"] += batch.column("crc").to_pylist()
        return Table.of(columns, names)
    except (
        OSError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,
    ) as error:  # pyarrow's errors derive from these
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise UserError(f"{path} is damaged ({reason})") from None
