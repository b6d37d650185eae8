"""Opens a user's own images for training."""

from __future__ import annotations

from typing import Any

from epitomic.data.augmentation import Augmentation
from epitomic.data.own.images import Place, open_own, remembered
from epitomic.data.photographs.color import ColorStatistics, measure_colors
from epitomic.data.photographs.crops import Photographs
from epitomic.data.photographs.feed import PhotographFeed
from epitomic.data.photographs.open import check_crop
from epitomic.data.small.feed import MemoryFeed
from epitomic.data.standardisation import Standardize


class OwnPhotographs(PhotographFeed):
    """Feeds a training from a user's own photographs.

    Attributes:
        crops: Number of crops of each test image whose predictions are averaged, 1 or 10.
    """

    crops: int = 10

    def describe(self) -> dict[str, Any]:
        """Returns what a user of the weights needs besides the network."""
        return {**super().describe(), "own": True, "crops": self.crops}


class OwnSmall(MemoryFeed):
    """Feeds a training from a user's own small images."""

    def describe(self) -> dict[str, Any]:
        """Returns what a user of the weights needs besides the network."""
        return {**super().describe(), "own": True}


def open_own_photographs(
    place: Place,
    config: Photographs,
    standardize: Standardize | None,
    *,
    crops: int,
    batch_size: int,
    seed: int,
    workers: int,
    quiet: bool,
) -> PhotographFeed:
    """Opens a user's own photographs to train on.

    Args:
        place: Where they are.
        config: What to do to them.
        standardize: Standardisation of the weights that the training starts from; None measures the images.
        crops: Number of crops of each test image, 1 or 10.
        batch_size: Number of images in a global batch.
        seed: Seed of the run.
        workers: Number of processes that read images.
        quiet: Show no progress.
    """
    images = open_own(place, workers, quiet=quiet)
    check_crop("--crop", config.crop, config.size, images.title)
    train, val = (
        remembered(images.photographs(split, config.size), workers, quiet=quiet) for split in ("train", "val")
    )
    statistics: ColorStatistics = measure_colors(train, workers)
    feed = OwnPhotographs(
        images.title, train, val, statistics, config, batch_size=batch_size, seed=seed, workers=workers
    )
    feed.bad.update(images.bad)
    feed.standardize = standardize or feed.standardize
    feed.crops = crops
    return feed


def open_own_small(
    place: Place,
    side: int,
    channels: int,
    augmentation: Augmentation,
    standardize: Standardize | None,
    *,
    views: str,
    batch_size: int,
    seed: int,
    workers: int,
    quiet: bool,
) -> MemoryFeed:
    """Opens a user's own small images to train on; see `open_own_photographs`.

    Args:
        place: Where they are.
        side: Height and width that all are resized to.
        channels: 1 for grey, 3 for colour.
        augmentation: Random changes of the training images.
        standardize: Standardisation of the weights that the training starts from; None measures the images.
        views: Views of each test image whose predictions are averaged.
        batch_size: Number of images in a global batch.
        seed: Seed of the run.
        workers: Number of processes that read images.
        quiet: Show no progress.
    """
    images = open_own(place, workers, quiet=quiet)
    feed = OwnSmall(images.small(side, channels, quiet=quiet), 0, batch_size, augmentation, seed, views=views)
    feed.bad.update(images.bad)
    feed.standardize = standardize or feed.standardize
    return feed
