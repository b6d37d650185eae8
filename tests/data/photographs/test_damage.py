"""Any file of a store, changed in any way, gives the same batches, one clear error, or skipped images."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch

from epitomic.data.feed import Part
from epitomic.data.photographs.crops import Photographs
from epitomic.data.photographs.open import open_photographs
from epitomic.data.photographs.prepare import prepare
from epitomic.support.errors import UserError
from tests.fuzzing import VARIANTS, mutate
from tests.photographs import make_folders

FILES = (
    *("index.json", "statistics.json", "train/table.safetensors", "val/table.safetensors"),
    *("train/shard-00000.arrow", "val/shard-00000.arrow"),
)


def look(store: Path) -> tuple[list[torch.Tensor], int]:
    """Returns everything that a training takes from a store, and the number of images that were skipped."""
    feed = open_photographs("photographs", store, Photographs(crop=20), batch_size=12, seed=0, workers=0)
    pairs = [*feed.stream(0, 0, Part()), *feed.validation(Part())]
    return [tensor for pair in pairs for tensor in pair], len(feed.bad)


@VARIANTS
def test_nothing_crashes_and_nothing_is_believed(variants: int, store: Path, tmp_path: Path) -> None:
    prepare(make_folders(tmp_path / "in", train=9, val=3), tmp_path / "other", size=24, workers=1)
    copy, rng = tmp_path / "store", np.random.default_rng(3)
    shutil.copytree(store, copy)
    expected, _ = look(copy)
    outcomes = {"the same": 0, "refused": 0, "skipped": 0}
    for variant in range(variants):
        path = copy / FILES[variant % len(FILES)]
        raw = path.read_bytes()
        changed = (tmp_path / "other" / FILES[variant % len(FILES)]).read_bytes()  # another store's file
        if variant >= len(FILES):
            changed = mutate(raw, rng)
        path.write_bytes(changed)
        try:
            found, skipped = look(copy)
            same = len(found) == len(expected) and all(map(torch.equal, found, expected))
            outcome = "the same" if same else "skipped" if skipped else f"a change of {path.name} went unnoticed"
        except UserError as error:
            # An index of another store is whole in itself, so the error names the table that does not fit it.
            told = str(error)
            named = path.name in told or (path.name == "index.json" and "table.safetensors" in told)
            outcome = "refused" if "\n" not in told and (named or "images cannot be read" in told) else told
        assert outcome in outcomes, outcome
        outcomes[outcome] += 1
        path.write_bytes(raw)
    print(outcomes)
    assert outcomes["refused"] > 0.5 * variants
    assert outcomes["skipped"] > 0
