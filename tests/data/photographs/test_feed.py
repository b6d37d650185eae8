"""Each sample once an epoch, whatever the workers and processes; a stream goes on from any batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from epitomic.data.feed import SKIP, Feed, Part
from epitomic.data.photographs.crops import Photographs, center_crop
from epitomic.data.photographs.feed import PhotographFeed
from epitomic.data.photographs.open import open_photographs
from epitomic.data.photographs.prepare import prepare
from epitomic.data.photographs.views import evaluation_batches
from epitomic.support.errors import UserError
from epitomic.support.images import BadImageError
from tests.photographs import make_folders

BATCH, SEED = 6, 3
CONFIG = Photographs(crop=20, size=24)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("feed")
    make_folders(folder / "in", train=7, val=5)  # 21 images: 3 batches of 6, and one of 3
    prepare(folder / "in", folder / "store", size=24, workers=1)
    return folder / "store"


def open_feed(store: Path, workers: int = 0, seed: int = SEED) -> PhotographFeed:
    return open_photographs("photographs", store, CONFIG, batch_size=BATCH, seed=seed, workers=workers)


def epoch(feed: Feed, number: int, part: Part, first: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    pieces = list(feed.stream(number, first, part))
    return torch.stack([p[0] for p in pieces]), torch.stack([p[1] for p in pieces])


@pytest.fixture(scope="module")
def straight(store: Path) -> tuple[torch.Tensor, torch.Tensor]:
    return epoch(open_feed(store), 1, Part())  # (4, 6, 3, 20, 20), (4, 6)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_each_sample_once_and_the_same_batches(
    processes: int, workers: int, store: Path, straight: tuple[torch.Tensor, torch.Tensor]
) -> None:
    feed = open_feed(store, workers)
    parts = [epoch(feed, 1, Part(rank, processes)) for rank in range(processes)]
    images, labels = (torch.cat([part[i] for part in parts], 1) for i in range(2))
    assert torch.equal(images, straight[0])
    assert torch.equal(labels, straight[1])
    order = feed.order(1).flatten()
    assert sorted(order[order >= 0].tolist()) == list(range(21))
    assert torch.equal(labels.flatten()[:21], feed.train.labels[order[:21]])
    assert (labels.flatten()[21:] == SKIP).all()
    assert [feed.count(batch) for batch in range(len(feed))] == [6, 6, 6, 3]


def test_what_does_not_count_is_other_images_of_the_batch(
    store: Path, straight: tuple[torch.Tensor, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros would enter the statistics of batch norms."""
    images, labels = straight
    assert torch.equal(images[3, 3:], images[3, :3])
    feed = open_feed(store)
    spoiled, read = feed.order(1)[0, 2].item(), feed.train.pixels

    def read_all_but_one(index: int) -> object:
        if index == spoiled:
            raise BadImageError("spoiled")
        return read(index)

    monkeypatch.setattr(feed.train, "pixels", read_all_but_one)
    filled, known = next(feed.stream(1, 0, Part()))
    assert known.tolist() == [SKIP if place == 2 else label for place, label in enumerate(labels[0].tolist())]
    assert torch.equal(filled[2], filled[0])
    assert torch.equal(filled[known != SKIP], images[0][known != SKIP])
    assert len(feed.bad) == 1


def test_the_size_that_is_told_is_the_stores(store: Path) -> None:
    feed = open_photographs("photographs", store, Photographs(crop=20), batch_size=BATCH, seed=SEED, workers=0)
    assert feed.describe()["photographs"] == {**vars(Photographs(crop=20)), "size": 24}


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_goes_on_in_the_middle(
    first: int, workers: int, store: Path, straight: tuple[torch.Tensor, torch.Tensor]
) -> None:
    images, labels = epoch(open_feed(store, workers), 1, Part(), first)
    assert torch.equal(images, straight[0][first:])
    assert torch.equal(labels, straight[1][first:])


def test_pieces_are_pieces_of_the_batch(store: Path, straight: tuple[torch.Tensor, torch.Tensor]) -> None:
    images, _ = epoch(open_feed(store), 1, Part(pieces=3))
    assert torch.equal(images.reshape(straight[0].shape), straight[0])


def test_epochs_and_seeds_differ(store: Path, straight: tuple[torch.Tensor, torch.Tensor]) -> None:
    for other in (epoch(open_feed(store), 2, Part()), epoch(open_feed(store, seed=4), 1, Part())):
        assert not torch.equal(other[0], straight[0])


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_validation_is_shared_out(processes: int, store: Path) -> None:
    feed = open_feed(store)
    labels = [labels for rank in range(processes) for _, labels in feed.validation(Part(rank, processes))]
    assert sorted(torch.cat(labels).tolist()) == sorted(feed.val.labels.tolist())


def test_a_process_counts_its_own_bad_images(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = open_feed(store)
    monkeypatch.setattr("epitomic.data.photographs.views.BAD_SHARE", 0.1)

    def read_none(index: int) -> object:
        raise BadImageError("spoiled")

    monkeypatch.setattr(feed.val, "pixels", read_none)
    with pytest.raises(UserError, match="2 of 2 images cannot be read"):  # of all, 2 of 15
        list(evaluation_batches(feed.val, center_crop, 20, feed.standardize, samples=torch.arange(2)))


def test_a_crop_that_does_not_fit(store: Path) -> None:
    with pytest.raises(UserError, match=r"--crop 25 does not fit: the short side of the images in .* is 24"):
        open_photographs("photographs", store, Photographs(crop=25), batch_size=6, seed=0, workers=0)


def test_statistics_of_other_data_are_refused(store: Path, tmp_path: Path) -> None:
    import shutil

    make_folders(tmp_path / "in", train=3, val=1)
    prepare(tmp_path / "in", tmp_path / "other", size=24, workers=1)
    shutil.copy(store / "statistics.json", tmp_path / "other/statistics.json")
    with pytest.raises(UserError, match=r"statistics.json is (damaged|truncated)"):
        open_feed(tmp_path / "other")


def test_no_images_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no images of photographs in"):
        open_feed(tmp_path)
