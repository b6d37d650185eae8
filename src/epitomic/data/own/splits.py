"""Splits images into train, val and test by the SHA-256 of each file's bytes.

The first 64 bits of the checksum, as a share of 2**64, decide: below 0.8 train, below 0.9 val, else test. So the split
is the same on every machine and for every seed, an image stays where it is when others are added, and copies of one
image are always on one side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from epitomic.data.own.listing import SPLITS
from epitomic.support.errors import UserError

RANGES = {"train": (0.0, 0.8), "val": (0.8, 0.9), "test": (0.9, 1.0)}
FEWEST = 3  # different images of a class: one for each split


def share(digest: str) -> float:
    """Returns the checksum as a number from 0 to 1."""
    return int(digest[:16], 16) / 2**64


def split_by_hash(digest: str, free: Sequence[str] = SPLITS) -> str:
    """Returns the split of an image; the splits that are not ``free`` fall to train.

    >>> split_by_hash("e0" + 62 * "0"), split_by_hash("e0" + 62 * "0", ["train", "test"])
    ('val', 'train')
    """
    place = share(digest)
    return next((name for name, (low, high) in RANGES.items() if low <= place < high and name in free), "train")


def assign(digests: Sequence[str], labels: Sequence[str], given: Sequence[str | None]) -> tuple[list[str], list[str]]:
    """Gives each image a split: its own, or one by its checksum.

    Images of train are shared out if the set has no val or no test. A class without an image in such a split gives it
    the image whose checksum is nearest.

    Returns:
        The split of each image, and a line on each class that had to give images.

    Raises:
        UserError: If a class has too few different images, or a split has classes that train lacks.
    """
    known = {split for split in given if split is not None}
    free = [split for split in SPLITS if split == "train" or split not in known]
    mine = [split in (None, "train") for split in given]  # images that may be shared out
    place = {d: split_by_hash(d, free) for d, own in zip(digests, mine, strict=True) if own}
    holders: dict[str, set[str]] = {}  # class -> its different images
    for digest, label, own in zip(digests, labels, mine, strict=True):
        if own:
            holders.setdefault(label, set()).add(digest)
    _check(holders, labels, given, len(free))
    notes = []
    for label in sorted(holders):
        moved = _fill(label, holders, place, free)
        if moved:
            counts = Counter(moved)
            listed = " and ".join(f"{count} to {split}" for split, count in counts.items())
            notes.append(f"class {label!r} has few images: it gives {listed}, by the nearest checksum")
    splits = [place[d] if own else str(split) for d, split, own in zip(digests, given, mine, strict=True)]
    return splits, notes


def _check(holders: dict[str, set[str]], labels: Sequence[str], given: Sequence[str | None], needed: int) -> None:
    """Raises an error about the first class that does not fit."""
    if len(holders) < 2:
        only = f"only {next(iter(holders))!r}" if holders else "none"
        raise UserError(f"a classifier needs images of at least two classes to train on, and there is {only}")
    for label, split in zip(labels, given, strict=True):
        if label not in holders:
            raise UserError(f"class {label!r} has images in {split} but none in train: add some, or remove it there")
    for label, images in sorted(holders.items()):
        if len(images) < needed:
            count = f"{len(images)} different image" + ("s" if len(images) > 1 else "")
            kinds = {1: "train", 2: "train and one more split", 3: "train, val and test"}[needed]
            raise UserError(f"class {label!r} has {count}: it needs at least {needed}, for {kinds}")


def _fill(label: str, holders: dict[str, set[str]], place: dict[str, str], free: Sequence[str]) -> list[str]:
    """Moves images of a class to the splits where it has none, and returns these splits."""
    moved = []
    for split in reversed(free):
        if any(place[digest] == split for digest in holders[label]):
            continue
        low, high = RANGES[split]
        spare = [digest for digest in holders[label] if _is_spare(digest, holders, place)]
        if not spare:
            raise UserError(f"class {label!r} has too few images of its own: most are also in other classes")
        nearest = min(spare, key=lambda digest: (max(low - share(digest), share(digest) - high, 0.0), digest))
        place[nearest] = split
        moved.append(split)
    return moved


def _is_spare(digest: str, holders: dict[str, set[str]], place: dict[str, str]) -> bool:
    """Whether every class that has this image has another one in the same split."""
    owners = [images for images in holders.values() if digest in images]
    return all(sum(place[other] == place[digest] for other in images) > 1 for images in owners)
