"""Damages files: at random, or as somebody would who knows the format and wants to do harm."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from epitomic.support.files import SEAL, _seal
from tests.fuzzing import mutate

Random = np.random.Generator
Mutator = Callable[[bytes, Random], bytes]

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, -1e308, float("nan"), float("inf"), 1e-320),
    *("", "x", "../../outside", "/etc/passwd", "\0", "\ud800", "a" * 5000, [], {}, [[]], [None], {"a": {}}, [0] * 1000),
)


def damaged(raw: bytes, random: Random) -> bytes:
    """Damage at random; one file in ten is another kind of file altogether."""
    kind = random.integers(20)
    if kind == 0:
        return (b"", b"\0" * 100, b"{}", b"[]", raw + raw, b"PK\x03\x04" + raw, b"%!PS-Adobe-3.0 EPSF-3.0\n")[
            random.integers(7)
        ]
    if kind == 1:
        return random.bytes(int(random.integers(1, 3000)))
    for _ in range(int(random.integers(1, 4))):
        raw = mutate(raw, random) if raw else raw
    return raw


def hostile_json(raw: bytes, random: Random) -> bytes:
    """Changes one entry somewhere in a JSON file, and writes a right checksum if the file had one."""
    values = json.loads(raw)
    sealed = values.pop(SEAL, None) is not None
    _change(values, random)
    try:
        seal = {SEAL: _seal(values)} if sealed else {}
        return json.dumps({**values, **seal}).encode(errors="backslashreplace")
    except ValueError:
        return b"{}"


def _change(values: Any, random: Random) -> None:
    """Goes down to a random entry and replaces, removes or repeats it."""
    place = values
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = keys[int(random.integers(len(keys)))]
        if isinstance(place[key], dict | list) and place[key] and random.random() < 0.7:
            place = place[key]
            continue
        kind = random.integers(5)
        if kind == 0:
            del place[key]
        elif kind == 1 and isinstance(place, dict):
            place["surprise"] = place[key]
        elif kind == 2 and isinstance(place, list):
            place.append(place[key])
        else:
            place[key] = HOSTILE[int(random.integers(len(HOSTILE)))]
        return


def hostile_safetensors(raw: bytes, random: Random) -> bytes:
    """Changes the header of a safetensors file: shapes, types and places that do not fit."""
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    if random.random() < 0.2:
        return struct.pack("<Q", int(random.choice([0, 1, size - 1, 2**31, 2**62]))) + raw[8:]
    _change(header, random)
    try:
        text = json.dumps(header).encode()
    except ValueError:
        return raw[:8]
    return struct.pack("<Q", len(text)) + text + raw[8 + size :]


def inside_gzip(change: Mutator) -> Mutator:
    """Changes what is packed, and packs it again."""
    return lambda raw, random: gzip.compress(change(gzip.decompress(raw), random), 1)


def hostile_idx(raw: bytes, random: Random) -> bytes:
    """Changes the dimensions in the header of an IDX file, or makes it a bomb."""
    if random.random() < 0.3:
        size = int(random.choice([1 << 20, (1 << 26) - 64, 1 << 28]))
        return b"\0\0\x08\x01" + struct.pack(">I", int(random.choice([size, 1 << 25, 2**32 - 1]))) + bytes(size)
    place = 4 * int(random.integers(0, 4))
    return raw[:place] + struct.pack(">I", int(random.choice([0, 1, 2**16, 2**31, 2**32 - 1]))) + raw[place + 4 :]


def hostile_csv(raw: bytes, random: Random) -> bytes:
    """Replaces, removes or repeats a cell or a line."""
    lines = [line.split(",") for line in raw.decode().splitlines()]
    line = lines[int(random.integers(len(lines)))]
    cell = int(random.integers(len(line)))
    values = ("", "x", "nan", "inf", "-1", "1e999", '"', "9" * 5000, "0x10", "\0", "1_0", "½")
    kind = random.integers(4)
    if kind == 0:
        del line[cell]
    elif kind == 1:
        lines.append(line)
    else:
        line[cell] = values[int(random.integers(len(values)))]
    return "\n".join(",".join(line) for line in lines).encode()
