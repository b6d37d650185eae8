"""Checks of values that come from JSON or CSV, before anything believes them.

A schema is a dictionary: name of an entry -> what fits. Entries that a schema does not name are left alone, because
later versions may add some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from epitomic.support.errors import UserError

Fits = Callable[[Any], bool]


@dataclass(frozen=True)
class Entry:
    """What fits one entry.

    Attributes:
        fits: Whether a value fits.
        what: Name of the values that fit, for errors.
        needed: Whether the entry must be there.
    """

    fits: Fits
    what: str
    needed: bool = True

    def optional(self) -> Entry:
        """Returns the same for an entry that may be missing."""
        return Entry(self.fits, self.what, needed=False)


Schema = Mapping[str, "Entry | Schema"]


def is_number(value: Any) -> bool:
    """Whether this is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def is_count(value: Any) -> bool:
    """Whether this is a whole number of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_share(value: Any) -> bool:
    """Whether this is a number from 0 to 1."""
    return is_number(value) and 0 <= value <= 1


def maps_text_to(fits: Fits) -> Fits:
    """Returns whether a value is an object all of whose values fit."""
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def or_none(fits: Fits) -> Fits:
    """Returns whether a value fits or is null."""
    return lambda value: value is None or fits(value)


NUMBER = Entry(is_number, "a finite number")
SECONDS = Entry(lambda value: is_number(value) and value >= 0, "a number of seconds")
COUNT = Entry(is_count, "a whole number of at least 0")
SHARE = Entry(is_share, "a number from 0 to 1")
TEXT = Entry(lambda value: isinstance(value, str), "text")
TEXTS = Entry(maps_text_to(TEXT.fits), "an object of texts")


def check_schema(values: Mapping[str, Any], schema: Schema, where: str) -> None:
    """Raises an error that names the first entry that is missing or does not fit; ``where`` names the file."""
    for name, entry in schema.items():
        if isinstance(entry, Entry):
            if name not in values and entry.needed:
                raise UserError(f"{where} has no entry {name!r}")
            if name in values and not entry.fits(values[name]):
                raise UserError(f"{where}: its {name!r} must be {entry.what}, got {_short(values[name])}")
        elif name in values:
            if not isinstance(values[name], dict):
                raise UserError(f"{where}: its {name!r} must be an object, got {_short(values[name])}")
            check_schema(values[name], entry, f"{where}: {name}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
