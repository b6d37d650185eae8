"""Reads every image once: its SHA-256, its size, and whether it can be decoded. The facts are kept in the user's cache.

They are kept by name, size and time of the file, so an image is read again only after it has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from epitomic.data.location import cache
from epitomic.data.own.listing import Blobs, Listed
from epitomic.data.photographs.loading import load_in_order
from epitomic.support.console import Progress
from epitomic.support.errors import UserError
from epitomic.support.files import read_json, sha256, write_text
from epitomic.support.images import BadImageError, decode, decode_jpeg, to_array

FORMAT = 1
CHUNK = 16  # images that a worker looks at in one go
GREY_UP_TO = 64 * 64  # pixels; larger images are not searched for colour


@dataclass(frozen=True)
class ImageFacts:
    """What is known of one image file.

    Attributes:
        sha256: Checksum of its bytes; empty if they cannot be read.
        width: Width in pixels as stored.
        height: Height in pixels as stored.
        grey: Whether it is small and has no colour.
        problem: Why it cannot be decoded; None for a good image.
    """

    sha256: str
    width: int = 0
    height: int = 0
    grey: bool = False
    problem: str | None = None


def look_at(contents: bytes) -> ImageFacts:
    """Decodes the bytes of an image file, and returns its facts."""
    digest = sha256(contents)
    try:
        pixels = decode_jpeg(contents)
        if pixels is None:
            pixels = to_array(decode(contents))
    except BadImageError as error:
        return ImageFacts(digest, problem=str(error))
    height, width = pixels.shape[:2]
    grey = height * width <= GREY_UP_TO and bool((pixels == pixels[..., :1]).all())
    return ImageFacts(digest, width, height, grey)


def gather(listed: Listed, workers: int, *, quiet: bool = False) -> list[ImageFacts]:
    """Returns the facts of each image, from the cache or by reading it."""
    path = cache() / "own" / f"{hashlib.sha256(os.fsencode(listed.root)).hexdigest()[:32]}.json"
    kept = _read(path)
    blobs = listed.blobs
    names = [blobs.name(index) for index in range(len(blobs))]
    stamps = [blobs.stamp(index) for index in range(len(blobs))]
    found: dict[int, ImageFacts] = {}
    for index, (name, stamp) in enumerate(zip(names, stamps, strict=True)):
        entry = kept.get(name)
        if stamp and entry is not None and entry[0] == stamp:
            found[index] = entry[1]
    new = [index for index in range(len(blobs)) if index not in found]
    if new:
        with Progress(len(new), unit="images", quiet=quiet) as progress:
            progress.say(f"looking at {len(new):,} images")
            chunks = torch.tensor(new).split(CHUNK)
            few = len(new) < 4 * CHUNK  # starting processes would take longer
            for indices, facts in load_in_order(partial(_look, blobs), chunks, 0 if few else workers):
                found.update(zip(indices, facts, strict=True))
                done = len(found) - (len(blobs) - len(new))
                progress.update(f"looking at image {done:,} of {len(new):,}", done)
        entries = {name: [stamps[i], *asdict(found[i]).values()] for i, name in enumerate(names)}
        write_text(path, json.dumps({"format": FORMAT, "images": entries}))
    return [found[index] for index in range(len(blobs))]


def _look(blobs: Blobs, indices: Tensor) -> tuple[list[int], list[ImageFacts]]:
    found = []
    for index in indices.tolist():
        try:
            found.append(look_at(blobs.contents(index)))
        except (BadImageError, OSError) as error:
            found.append(ImageFacts("", problem=str(error)))
    return indices.tolist(), found


def _read(path: Any) -> dict[str, tuple[str, ImageFacts]]:
    """Reads the kept facts. A damaged file counts as none, because all of it can be found again."""
    try:
        values = read_json(path)
        if values["format"] != FORMAT:
            return {}
        return {
            str(name): (str(stamp), ImageFacts(str(digest), int(width), int(height), grey is True, problem))
            for name, (stamp, digest, width, height, grey, problem) in values["images"].items()
        }
    except (UserError, KeyError, TypeError, ValueError, AttributeError):
        return {}
