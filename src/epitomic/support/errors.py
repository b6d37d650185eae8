"""Errors that the user can mend: the command line shows them as one line and exits with status 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """An input does not fit; the message names it, says what it is and what would fit."""


def first_line(error: Exception) -> str:
    """Returns the first line of an error's text, cut to 200 characters. Texts of torch may go on for many lines."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)[:200]


def worker_lost(error: Exception) -> UserError:
    """Returns an error for a worker process that has died, as torch's data loader or the connection to it says."""
    return UserError(f"a process that reads images has died ({first_line(error)}): try fewer --workers")


def unknown(kind: str, got: str, known: Iterable[str]) -> UserError:
    """Returns an error for a name that does not exist; it suggests near names, or lists all.

    >>> print(unknown("model", "epitomic_smal", ["epitomic_small", "alexnet"]))
    unknown model 'epitomic_smal': did you mean 'epitomic_small'?
    """
    names = sorted(known)
    last = [name for name in names if name.rpartition(".")[2] == got.lstrip("-")]  # --lr for --optimizer.lr
    near = last or difflib.get_close_matches(got, names, n=3, cutoff=0.5)
    hint = "did you mean " + " or ".join(map(repr, near)) + "?" if near else "choose from " + ", ".join(names)
    return UserError(f"unknown {kind} {got!r}: {hint}")
