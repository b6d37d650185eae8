"""Batches depend on seed, epoch and batch alone."""

from __future__ import annotations

import pytest
import torch

from epitomic.data.augmentation import Augmentation
from epitomic.data.feed import Part
from epitomic.data.small.feed import MemoryFeed
from epitomic.data.small.splits import ImageSet, Split
from tests.data.conftest import random_split

EVERYTHING = Augmentation(shift=2, flip=True, rotate=15, scale=0.1, shear=5, translate=1, elastic=0.5, cutout=3)


def open_feed(split: Split, batch_size: int, augmentation: Augmentation, seed: int = 3) -> MemoryFeed:
    return MemoryFeed(ImageSet("test", tuple("abc"), split, split), 1, batch_size, augmentation, seed)


@pytest.mark.parametrize("augmentation", [Augmentation(), EVERYTHING])
@pytest.mark.parametrize(("processes", "count"), [(2, 1), (1, 2), (2, 2)])
def test_parts_are_parts_of_the_whole(augmentation: Augmentation, processes: int, count: int) -> None:
    feed = open_feed(random_split(), 32, augmentation)
    whole = list(feed.stream(1, 0, Part()))
    ranks = [list(feed.stream(1, 0, Part(rank, processes, count))) for rank in range(processes)]
    for number, batch in enumerate(whole):
        pieces = [piece for rank in ranks for piece in rank[number * count : (number + 1) * count]]
        for got, expected in zip(map(torch.cat, zip(*pieces, strict=True)), batch, strict=True):
            assert torch.equal(got, expected)


def test_a_stream_goes_on_in_the_middle() -> None:
    feed = open_feed(random_split(), 16, EVERYTHING)
    whole = list(feed.stream(2, 0, Part()))
    assert len(whole) == len(feed) == 4
    for got, expected in zip(feed.stream(2, 3, Part()), whole[3:], strict=True):
        assert torch.equal(got[0], expected[0])
        assert torch.equal(got[1], expected[1])


def test_epochs_differ_and_repeat() -> None:
    feed = open_feed(random_split(), 32, EVERYTHING)
    assert len(feed) == 2
    assert feed.order(0).unique().numel() == 64
    assert not torch.equal(feed.order(0), feed.order(1))

    def last(feed: MemoryFeed) -> torch.Tensor:
        *_, (images, _) = feed.stream(0, 0, Part())
        return images

    assert torch.equal(last(feed), last(open_feed(random_split(), 32, EVERYTHING)))
    assert not torch.equal(feed.order(0), open_feed(random_split(), 32, EVERYTHING, seed=4).order(0))


def test_alternate_flips_mirror_each_image_in_every_other_epoch() -> None:
    images = random_split(65, channels=1).images
    feed = open_feed(Split(images, torch.arange(65)), 16, Augmentation(flip=True, alternate=True))
    mirrored = torch.zeros(4, 65, dtype=torch.bool)
    for epoch in range(4):
        for seen, labels in feed.stream(epoch, 0, Part()):
            for image, label in zip(seen, labels.tolist(), strict=True):
                plain = feed.standardize(images[label][None].float() / 255)[0]
                mirrored[epoch, label] = torch.equal(image, plain.flip(-1))
                assert mirrored[epoch, label] or torch.equal(image, plain)
    learned = feed.training.labels  # all but the one that is held out
    assert len(learned) == 64
    assert torch.equal(mirrored[0, learned], ~mirrored[1, learned])
    assert torch.equal(mirrored[0], mirrored[2])
    assert 16 < mirrored[0].sum() < 48


@pytest.mark.parametrize("augmentation", [Augmentation(), EVERYTHING])
def test_the_set_and_its_augmentation_are_on_the_device(augmentation: Augmentation) -> None:
    """`meta` stands for a GPU. A tensor that was left on the CPU would be an error."""
    feed = open_feed(random_split(), 16, augmentation)
    meta = torch.device("meta")
    batches = list(feed.stream(0, 0, Part(device=meta)))
    expected = list(feed.stream(0, 0, Part()))
    for got, cpu in zip(batches, expected, strict=True):
        assert [(t.shape, t.dtype, t.device) for t in got] == [(t.shape, t.dtype, meta) for t in cpu]
