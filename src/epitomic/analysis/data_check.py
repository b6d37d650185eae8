"""Finds faults in the images of a run: near-copies across splits, and classes with too few images."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.analysis.copies import near_copies, shrink_all
from epitomic.analysis.names import own_names
from epitomic.data.photographs.feed import PhotographFeed
from epitomic.data.photographs.loading import ImageSource, default_workers
from epitomic.data.small.feed import MemoryFeed
from epitomic.data.small.splits import Split
from epitomic.data.test_images import PhotographTest
from epitomic.support.console import Tell, tell_nobody
from epitomic.support.errors import UserError
from epitomic.training.run_folder import RunFolder
from epitomic.training.setup import Settings, open_feed

FEW = 20  # training images; a class with fewer has too few
FEW_SHARE = 0.25  # a class with less than this share of the median class's training images also has too few
FEW_TESTED = 10  # test images; the error of a class with fewer is hardly known
SMALLEST = 32  # pixels; different images that are smaller often look the same
MOST = 20_000  # photographs that are searched for near-copies; reading more would take minutes
SHOWN = 12  # pairs of near-copies that are shown
SIDE = 96  # pixels of their pictures


@dataclass(frozen=True)
class Gallery:
    """The images of one split.

    Attributes:
        split: What the split is for: training, validation or test.
        images: The images, in memory or on disk.
        names: Paths of images in memory, if they are known.
    """

    split: str
    images: Split | ImageSource
    names: Sequence[str] = ()

    def name(self, number: int) -> str:
        """Returns the path of an image, or its number if it has none."""
        if isinstance(self.images, Split):
            return self.names[number] if self.names else f"{self.split} image {number}"
        return self.images.name(number)

    def picture(self, number: int) -> Tensor:
        """Returns a small square copy of an image as bytes, (C, S, S)."""
        if isinstance(self.images, Split):
            return self.images.images[number]
        pixels = torch.from_numpy(self.images.pixels(number).copy()).permute(2, 0, 1)[None]
        small = F.interpolate(pixels.float(), (SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)
        return small.round().clamp(0, 255).to(torch.uint8)[0]


@dataclass(frozen=True)
class Pair:
    """Two images of different splits that look the same.

    Attributes:
        names: Their paths.
        labels: Their class numbers.
        pictures: Small copies of them as bytes, (C, S, S).
        distance: Number of the 64 bits in which their hashes differ.
    """

    names: tuple[str, str]
    labels: tuple[int, int]
    pictures: tuple[Tensor, Tensor]
    distance: int


@dataclass
class DataCheck:
    """What was found out about the images of a run.

    Attributes:
        images: Number of images of each split.
        training: Number of training images of each class.
        tested: Number of test images of each class.
        few: Numbers of the classes with too few images to train on or to test on, the smallest first.
        copied: For two splits, the earlier one first: how many images of the later one have a near-copy in the earlier.
        other_labels: Number of pairs of near-copies with different labels.
        pairs: The most alike pairs, those with different labels first.
        unsearched: Why near-copies were not searched; None if they were.
    """

    images: dict[str, int]
    training: list[int]
    tested: list[int]
    few: list[int]
    copied: dict[tuple[str, str], int] = field(default_factory=dict)
    other_labels: int = 0
    pairs: list[Pair] = field(default_factory=list)
    unsearched: str | None = None


def check_data(run: RunFolder, tell: Tell = tell_nobody) -> DataCheck:
    """Counts the images of each class, and searches near-copies across the splits.

    Args:
        run: A run with a recipe.
        tell: Called with the progress.

    Raises:
        UserError: If the images are not here.
    """
    galleries = open_galleries(run)
    classes = len(run.classes)
    counts = {g.split: torch.bincount(g.images.labels, minlength=classes).tolist() for g in galleries}
    training, tested = counts["training"], counts["test"]
    check = DataCheck({g.split: len(g.images) for g in galleries}, training, tested, too_few(training, tested))
    check.unsearched = _cannot_search(galleries)
    if check.unsearched is None:
        _search(check, galleries, run.name, tell)
    return check


def open_galleries(run: RunFolder) -> list[Gallery]:
    """Opens the images of a run: training, validation (unless it is the test set) and test."""
    settings = Settings(data_dir=run.data_dir, workers=default_workers(), quiet=True)
    recipe = run.read_recipe()
    feed, test = open_feed(recipe, settings), run.open_test_images()
    tested = test.source if isinstance(test, PhotographTest) else test.split
    if isinstance(feed, MemoryFeed):
        parts = (("training", feed.training, "train"), ("validation", feed.held_out, "val"), ("test", tested, "test"))
        names = own_names(run) if recipe.data.share is None else {}
        return [Gallery(split, images, names.get(part, ())) for split, images, part in parts]
    assert isinstance(feed, PhotographFeed)
    found = [Gallery("training", feed.train)]
    if isinstance(tested, Split) or feed.val.fingerprint != tested.fingerprint:
        found.append(Gallery("validation", feed.val))
    return [*found, Gallery("test", tested)]


def too_few(training: list[int], tested: list[int]) -> list[int]:
    """Returns the classes with too few images to train on or to test on, those with the fewest training images first.

    >>> too_few([100, 19, 90, 24, 100], [20, 20, 9, 20, 20])
    [1, 2]
    """
    least = max(FEW, FEW_SHARE * median(training))
    found = [i for i, (a, b) in enumerate(zip(training, tested, strict=True)) if a < least or b < FEW_TESTED]
    return sorted(found, key=lambda i: (training[i], tested[i]))


def _cannot_search(galleries: list[Gallery]) -> str | None:
    total = sum(len(g.images) for g in galleries)
    for gallery in galleries:
        if isinstance(gallery.images, Split):
            side = min(gallery.images.images.shape[2:])
            if side < SMALLEST:
                return f"the images have {side} pixels: below {SMALLEST}, different images often look the same"
        elif total > MOST:
            return f"there are {total:,} photographs, and reading more than {MOST:,} would take long"
    return None


def _search(check: DataCheck, galleries: list[Gallery], name: str, tell: Tell) -> None:
    total, done, values = sum(check.images.values()), 0, []
    for gallery in galleries:

        def told(share: float, split: str = gallery.split, before: int = done, size: int = len(gallery.images)) -> None:
            tell(f"{name}: near-copies, {split} images", (before + share * size) / total)

        values.append(shrink_all(gallery.images, told))
        done += len(gallery.images)
    found: list[tuple[bool, int, Gallery, Gallery, int, int]] = []
    for a, b in itertools.combinations(range(len(galleries)), 2):
        first, second = galleries[a], galleries[b]
        copies = near_copies(values[a], values[b])
        check.copied[first.split, second.split] = len({copy.second for copy in copies})
        for copy in copies:
            same = bool(first.images.labels[copy.first] == second.images.labels[copy.second])
            found.append((same, copy.distance, first, second, copy.first, copy.second))
    check.other_labels = sum(not same for same, *_ in found)
    shown: set[tuple[str, int]] = set()
    for _, distance, first, second, i, j in sorted(found, key=lambda pair: pair[:2]):
        if len(check.pairs) < SHOWN and (second.split, j) not in shown:  # an image is shown once
            shown.add((second.split, j))
            labels = int(first.images.labels[i]), int(second.images.labels[j])
            pictures = first.picture(i), second.picture(j)
            check.pairs.append(Pair((first.name(i), second.name(j)), labels, pictures, distance))


def check_if_possible(run: RunFolder, tell: Tell = tell_nobody) -> tuple[DataCheck | None, str | None]:
    """Returns what `check_data` finds, or why it cannot be done; both are None for weights without a run."""
    if not run.recipe:
        return None, None
    try:
        return check_data(run, tell), None
    except UserError as error:
        return None, f"The images were not checked: {error}"
