"""What a user should know of the images before the training: which are left out, and which have two labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from epitomic.data.own.facts import ImageFacts
from epitomic.data.own.listing import Listed
from epitomic.support.console import counted

NAMED = 5  # images that a line names


def named(bad: Mapping[str, str]) -> str:
    """Names the first unreadable images with their reasons."""
    first = "; ".join(f"{name}: {reason}" for name, reason in [*bad.items()][:NAMED])
    return first + (f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else "")


def left_out(bad: Mapping[str, str]) -> list[str]:
    """Returns a line about the images that are left out, if there are any."""
    if not bad:
        return []
    return [f"{counted(len(bad), 'image')} cannot be read and will be left out: {named(bad)}"]


def contradictions(listed: Listed, facts: Sequence[ImageFacts], good: Sequence[int]) -> list[str]:
    """Returns a line about images whose bytes stand in more than one class, if there are any."""
    holders: dict[str, dict[str, int]] = {}  # checksum -> class -> first image
    for i in good:
        holders.setdefault(facts[i].sha256, {}).setdefault(listed.labels[i], i)
    found = [[*images.values()] for images in holders.values() if len(images) > 1]
    if not found:
        return []
    first = "; ".join(" and ".join(listed.blobs.name(i) for i in images) for images in found[:NAMED])
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    many = "image has" if len(found) == 1 else "images have"
    return [f"{len(found)} {many} copies in different classes, so one label is wrong: {first}{more}"]
