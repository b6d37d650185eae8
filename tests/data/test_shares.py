"""A share of the training images is the same share of every class, and always the same images."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from epitomic.data.feed import Part
from epitomic.data.photographs.feed import PhotographFeed
from epitomic.data.shares import Chosen, choose_share, take_share
from epitomic.data.small.feed import MemoryFeed
from epitomic.training.recipe import Data, Recipe
from epitomic.training.setup import Settings, open_feed
from tests.photographs import make_folders


@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 0.9])
def test_every_class_gives_the_same_share(share: float) -> None:
    labels = torch.randint(0, 5, (400,), generator=torch.Generator().manual_seed(0))
    chosen = choose_share(labels, share)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    for label, count in enumerate(labels.bincount().tolist()):
        assert int((labels[chosen] == label).sum()) == max(1, round(share * count))
    assert torch.equal(chosen, choose_share(labels, share))
    assert set(choose_share(labels, share / 2).tolist()) <= set(chosen.tolist())


def test_validation_and_standardisation_stay() -> None:
    feeds = [open_feed(Recipe(data=Data(share=share)), Settings(quiet=True)) for share in (None, 0.5)]
    whole, half = feeds
    assert isinstance(whole, MemoryFeed)
    assert isinstance(half, MemoryFeed)
    assert abs(half.images - whole.images / 2) <= 5
    assert half.standardize == whole.standardize
    for one, other in zip(whole.validation(Part()), half.validation(Part()), strict=True):
        assert torch.equal(one[0], other[0])
    assert half.fingerprint == f"{whole.fingerprint} share 0.5"


def test_photographs_keep_their_names_and_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_folders(tmp_path / "photographs", train=8, val=2)
    recipe = Recipe(data=Data("photographs"), batch_size=4)
    settings = Settings(data_dir=str(tmp_path), workers=0, quiet=True)
    whole, half = open_feed(recipe, settings), open_feed(recipe, settings)
    take_share(half, 0.5)
    assert isinstance(whole, PhotographFeed)
    assert isinstance(half, PhotographFeed)
    assert isinstance(half.train, Chosen)
    assert half.train.labels.bincount().tolist() == [4, 4, 4]
    for place, number in enumerate(half.train.numbers):
        assert half.train.name(place) == whole.train.name(number)
        assert (half.train.pixels(place) == whole.train.pixels(number)).all()
        assert half.train.read(place).size == whole.train.read(number).size
