"""A store of format 1 becomes one of format 2, and trainings on it stay the same to the bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from epitomic.cli import main
from epitomic.data.feed import Part
from epitomic.data.photographs.crops import Photographs
from epitomic.data.photographs.feed import PhotographFeed
from epitomic.data.photographs.open import open_photographs
from epitomic.data.photographs.store import StoreImages, read_store_statistics
from epitomic.support.errors import UserError
from tests.data.photographs.conftest import SIZE
from tests.data.photographs.test_prepare import contents
from tests.photographs import Format1Images, as_format_1


@pytest.fixture
def old(store: Path, tmp_path: Path) -> Path:
    return as_format_1(store, tmp_path / "old")


def test_the_refusal_names_the_command_and_the_command_upgrades(
    old: Path, store: Path, folders: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError) as refusal:
        StoreImages(old, "train")
    command = str(refusal.value).split("`")[1]
    assert main(["prepare", str(folders), str(old), "--size", str(SIZE)]) == 2
    assert command in capsys.readouterr().err
    monkeypatch.setattr("PIL.Image.open", None)  # nothing is decoded
    assert main([*command.split()[1:], "--workers", "1"]) == 0
    assert contents(old) == contents(store)


def test_batches_are_those_of_format_1(old: Path, store: Path) -> None:
    """Batches, validation images and statistics decide the result of a training."""
    assert main(["prepare", str(old), "--upgrade", "--quiet", "--workers", "1"]) == 0
    config = Photographs(crop=20)
    new = open_photographs("photographs", old, config, batch_size=6, seed=5, workers=0)
    statistics = read_store_statistics(store, StoreImages(store, "train").fingerprint)
    literal = json.loads((store / "statistics.json").read_text())
    assert ([*statistics.mean], [list(row) for row in statistics.covariance]) == (
        literal["mean"],
        literal["covariance"],
    )
    train, val = (Format1Images(old, split) for split in ("train", "val"))
    first = PhotographFeed("photographs", train, val, statistics, config, batch_size=6, seed=5)
    for ours, theirs in (
        (new.stream(1, 0, Part()), first.stream(1, 0, Part())),
        (new.validation(Part()), first.validation(Part())),
    ):
        for (images, labels), (old_images, old_labels) in zip(ours, theirs, strict=True):
            assert torch.equal(images, old_images)
            assert torch.equal(labels, old_labels)


def damage(name: str, change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda store: (store / name).write_text(change((store / name).read_text()))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda s: (s / "plan.json").unlink(), "plan.json: there is no such file"),
        (damage("index.json", lambda text: text.replace("bytes", "bites")), "is damaged"),
        (damage("index.json", lambda text: text.replace("train/", "../")), "is not a path inside the store"),
        (damage("index.json", lambda text: text.replace('"ant", "bee"', '"bee", "ant"')), "has the label bee"),
        (damage("statistics.json", lambda text: text.replace('"mean"', '"men"')), "does not fit the records"),
        (damage("records/train/shard-00000.json", lambda text: text[:-9]), "cannot read"),
        (damage("records/train/shard-00000.json", lambda text: text.replace("sums", "suns")), "is damaged"),
        (lambda s: shutil.copy(s / "val/shard-00000.arrow", s / "train"), "missing, truncated or altered"),
        (
            lambda s: (s / "val/shard-00000.arrow").write_bytes(bytes((s / "val/shard-00000.arrow").stat().st_size)),
            "damaged",
        ),
    ],
)
def test_a_damaged_store_is_named_and_stays(
    spoil: Callable[[Path], object], says: str, old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(old)
    before = (old / "index.json").read_bytes()
    assert main(["prepare", str(old), "--upgrade", "--quiet", "--workers", "1"]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert (old / "index.json").read_bytes() == before
