"""Where image sets are on this machine."""

from __future__ import annotations

import os
from pathlib import Path

DATA_VARIABLE = "EPITOMIC_DATA"


def data_root(folder: str | Path | None = None) -> Path:
    """Returns ``folder`` if it is given, else the folder that EPITOMIC_DATA names, else the user's cache."""
    if folder or os.environ.get(DATA_VARIABLE):
        return Path(folder or os.environ[DATA_VARIABLE]).expanduser()
    return cache()


def cache() -> Path:
    """Returns the folder for files that can be made again, such as downloads."""
    from pooch import os_cache

    return Path(os_cache("epitomic"))
