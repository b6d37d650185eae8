"""The images that a network is tested on, opened by what its ``config.json`` says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from epitomic.data.feed import Batch
from epitomic.data.own.images import Place, open_own, remembered
from epitomic.data.photographs.crops import Photographs, center_crop, ten_crops
from epitomic.data.photographs.folders import check_classes
from epitomic.data.photographs.loading import BadImages, ImageSource, default_workers
from epitomic.data.photographs.open import PHOTOGRAPHS, open_validation
from epitomic.data.photographs.views import evaluation_batches
from epitomic.data.small.sets import NAMES, load_set
from epitomic.data.small.splits import Split
from epitomic.data.small.views import VIEWS, plain_batches, view_batches
from epitomic.data.standardisation import Standardize
from epitomic.support.errors import UserError, unknown
from epitomic.support.images import BadImageError
from epitomic.support.options import from_dict
from epitomic.support.rng import generator

MAX_SAMPLE = 1000  # photographs that `PhotographTest.sample` returns
CROPS = {1: center_crop, 10: ten_crops}


@dataclass(frozen=True)
class SmallTest:
    """Test images in memory.

    Attributes:
        name: Name of the image set.
        classes: Names of the classes, in the order of the labels.
        split: The images.
        standardize: Standardisation of the training.
        views: Views of each image whose predictions are averaged, one of `VIEWS`.
        bad: Empty, because every image in memory has been read.
    """

    name: str
    classes: tuple[str, ...]
    split: Split
    standardize: Standardize
    views: str
    bad: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.split)

    @property
    def way(self) -> dict[str, Any]:
        """How `batches` shows each image, for the record of an evaluation."""
        return {"views": self.views}

    @property
    def ways(self) -> dict[str, str]:
        """Names of `tests` for readers."""
        return {"test": "one view" if self.views == "one" else f"{self.views} views", "plain": "one view"}

    def batches(self) -> Iterable[Batch]:
        """Returns the views of each image, standardised, and its label."""
        return view_batches(self.split, self.standardize, self.views)

    def tests(self) -> dict[str, Iterable[Batch]]:
        """Returns what a finished training is tested on: the views, and if there are several, the plain images, too."""
        plain = {} if self.views == "one" else {"plain": plain_batches(self.split, self.standardize)}
        return {"test": self.batches(), **plain}

    def sample(self) -> Split:
        """Returns all images, to look at."""
        return self.split


@dataclass(frozen=True)
class PhotographTest:
    """Test images on disk.

    Attributes:
        name: Name of the image set.
        source: The images.
        crop: Height and width that the network sees.
        standardize: Standardisation of the training.
        crops: Number of crops of each image whose predictions are averaged, 1 or 10.
        workers: Number of processes that read images.
        device: Device that the images go to.
        bad: Images that could not be read so far: name and reason.
    """

    name: str
    source: ImageSource
    crop: int
    standardize: Standardize
    crops: int
    workers: int
    device: torch.device | None
    bad: BadImages = field(default_factory=BadImages)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""
        return self.source.classes

    def __len__(self) -> int:
        return len(self.source)

    @property
    def way(self) -> dict[str, Any]:
        """How `batches` shows each image, for the record of an evaluation."""
        return {"crops": self.crops}

    @property
    def ways(self) -> dict[str, str]:
        """Names of `tests` for readers."""
        return {"test": f"{self.crops} crops" if self.crops > 1 else "the centre crop", "center": "the centre crop"}

    def batches(self, crops: int | None = None) -> Iterable[Batch]:
        """Returns the crops of each image, standardised, and its label."""
        return evaluation_batches(
            self.source,
            CROPS[crops or self.crops],
            self.crop,
            self.standardize,
            workers=self.workers,
            device=self.device,
            bad=self.bad,
        )

    def tests(self) -> dict[str, Iterable[Batch]]:
        """Returns what a finished training is tested on: ten crops, as in the paper, and the centre crop."""
        return {"test": self.batches(), **({"center": self.batches(1)} if self.crops > 1 else {})}

    def sample(self) -> Split:
        """Returns the centre crops of at most `MAX_SAMPLE` images, always the same ones, in random order."""
        images, kept = [], []
        for index in torch.randperm(len(self.source), generator=generator("looked at"))[:MAX_SAMPLE].tolist():
            try:
                images.append(torch.from_numpy(center_crop(self.source.pixels(index), self.crop)[0].copy()))
            except BadImageError:
                continue
            kept.append(index)
        if not images:
            raise UserError(f"none of the {len(self.source)} test images of {self.name} can be read")
        return Split(torch.stack(images).permute(0, 3, 1, 2).contiguous(), self.source.labels[torch.tensor(kept)])


def open_test_images(
    config: dict[str, Any],
    path: Path,
    data_dir: str | None = None,
    *,
    place: Place | None = None,
    name: str | None = None,
    views: str | None = None,
    crops: int | None = None,
    workers: int | None = None,
    device: torch.device | None = None,
) -> SmallTest | PhotographTest:
    """Opens the test images of a network, and checks that they fit it.

    Args:
        config: Contents of the network's ``config.json``.
        path: Path of that file, for errors.
        data_dir: Folder of the image sets; see `data_root` for the default.
        place: Where the user's own images are that the network was trained on.
        name: Name of the image set (default: the one that the network was trained on).
        views: Views of each image of a small set, one of `VIEWS` (default: as trained).
        crops: Number of crops of each photograph, 1 or 10 (default: 10).
        workers: Number of processes that read photographs (default: half the cores, from 1 to 8).
        device: Device that photographs go to.

    Raises:
        UserError: If the images cannot be found, or do not fit the network.
    """
    standardize = Standardize.read(config, config.get("in_channels"), path)
    workers = default_workers() if workers is None else workers
    if config.get("own") and name is None:
        return _open_own(config, path, data_dir, place, standardize, views, crops, workers, device)
    known = (*NAMES, *PHOTOGRAPHS)
    name = name or config.get("dataset")
    if name not in known:
        raise UserError(f"{path} names no known image set: its dataset must be one of {', '.join(known)}, got {name}")
    test: SmallTest | PhotographTest
    if name in PHOTOGRAPHS:
        source, crop = open_validation(name, data_dir, config, path), int(config["image_size"])
        test = PhotographTest(name, source, crop, standardize, crops or 10, workers, device)
        channels, size = 3, crop
    else:
        given = views or str(config.get("views", "one"))
        if given not in VIEWS:
            raise unknown("--views" if views else f"views in {path}", given, VIEWS)
        try:
            images = load_set(name, data_dir)
        except UserError as error:
            raise UserError(f"the test images of {path.parent} ({name}) are not here: {error}") from None
        test = SmallTest(name, images.classes, images.test, standardize, given)
        channels, size = images.channels, images.image_size
    expected = (config.get("in_channels"), config.get("image_size"), config.get("num_classes"))
    if expected != (channels, size, len(test.classes)):
        raise UserError(
            f"{path}: the network takes (channels, size, classes) {expected}, but {name} has "
            f"{(channels, size, len(test.classes))}"
        )
    return test


def _open_own(
    config: dict[str, Any],
    path: Path,
    data_dir: str | None,
    place: Place | None,
    standardize: Standardize,
    views: str | None,
    crops: int | None,
    workers: int,
    device: torch.device | None,
) -> SmallTest | PhotographTest:
    """Opens the test images of a network that was trained on a user's own images."""
    if data_dir is not None:
        place = replace(place, source=data_dir) if place else Place(data_dir)
    if place is None:
        raise UserError(f"{path} is of somebody's own images {config.get('dataset')}: say where with --data-dir")
    images = open_own(place, workers)
    check_classes({str(path): list(map(str, config.get("classes", ()))), place.source: images.classes})
    if isinstance(config.get("photographs"), dict):
        settings = from_dict(Photographs, config["photographs"], str(path))
        source = remembered(images.photographs("test", settings.size), workers)
        crops = crops or (1 if config.get("crops") == 1 else 10)
        return PhotographTest(images.title, source, int(config["image_size"]), standardize, crops, workers, device)
    given = views or str(config.get("views", "one"))
    if given not in VIEWS:
        raise unknown("--views" if views else f"views in {path}", given, VIEWS)
    small = images.small(int(config["image_size"]), int(config["in_channels"]), quiet=True)
    return SmallTest(images.title, images.classes, small.test, standardize, given)
