"""Views of photographs for evaluation: images by number from a source, made by worker processes, given out in order."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from epitomic.data.batches import Standardize
from epitomic.data.crops import ten_crops
from epitomic.data.feed import BAD_SHARE, Batch, too_many
from epitomic.data.pixels import BadImageError
from epitomic.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

COUNT = 100  # views at a time
TOLD = 10  # bad images that are named as they are met

Problems = list[tuple[str, str]]  # (image, reason)


class ImageSource(Protocol):
    """Images by number: `folders.FolderImages`, `store.StoreImages`."""

    classes: tuple[str, ...]
    labels: Tensor
    size: int
    fingerprint: str

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """For the user, of one image."""
        ...

    def read(self, index: int) -> Image:
        """One image, its short side of length ``size``; `BadImageError` if it cannot be."""
        ...


class BadImages(dict[str, str]):
    """Images that could not be read, with the reason; the first few are told to the user as they are met."""

    def note(self, problems: Problems) -> None:
        """Takes these in."""
        for name, reason in problems:
            if name not in self and len(self) < TOLD:
                print(f"epitomic: skipped {name}: {reason}", file=sys.stderr)
            self[name] = reason


def load_in_order(dataset: Dataset[Any], workers: int, device: torch.device | None = None) -> Iterator[Any]:
    """The items of a data set, whole, in order, made by so many processes."""
    loader = DataLoader(
        dataset,
        batch_size=None,
        num_workers=workers,
        pin_memory=device is not None and device.type == "cuda",
        worker_init_fn=_leave_signals_to_the_parent,
        generator=torch.Generator(),  # it draws a number that nobody uses: not from the generator of others
    )
    try:
        yield from loader
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        raise UserError(f"a process that reads images has died ({reason}): try with fewer --workers") from None


def _leave_signals_to_the_parent(worker: int) -> None:
    """Ctrl-C and SIGTERM may reach the whole group; the training then finishes its step, and its workers with it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def to_numbers(images: Tensor, standardize: Standardize, noise: Tensor | None = None) -> Tensor:
    """Bytes, (N, H, W, 3), to numbers, (N, 3, H, W): colour noise, (N, 3), added, mean subtracted, scaled."""
    pixels = images.permute(0, 3, 1, 2).float().div_(255)
    if noise is not None:
        pixels += noise[:, :, None, None].to(pixels.device)
    return standardize(pixels)


def evaluation_batches(
    source: ImageSource,
    views: Callable[..., Any],
    crop: int,
    standardize: Standardize,
    *,
    samples: Tensor | None = None,
    workers: int = 0,
    device: torch.device | None = None,
    bad: BadImages | None = None,
) -> Iterator[Batch]:
    """Views of each image, (N, V, 3, crop, crop), and labels, (N,).

    Bad images are left out and noted; more than a small share of them is an error.

    Args:
        source: Where the images are.
        views: Such as `crops.ten_crops`: makes (V, crop, crop, 3) bytes of an image.
        crop: Height and width.
        standardize: As in training.
        samples: Numbers of the images. None: all.
        workers: Processes that read them.
        device: Where to.
        bad: Where to note bad images.
    """
    bad, count = BadImages() if bad is None else bad, 0
    samples = torch.arange(len(source)) if samples is None else samples
    at_once = COUNT // 10 if views is ten_crops else COUNT
    dataset = _Views(source, samples.split(at_once), partial(views, crop=crop))
    for images, labels, problems in load_in_order(dataset, workers, device):
        bad.note(problems)
        count += len(problems)
        if count > BAD_SHARE * len(samples):
            raise too_many(count, len(samples), bad)
        if len(labels):
            numbers = to_numbers(images.to(device, non_blocking=True).flatten(0, 1), standardize)
            yield numbers.unflatten(0, images.shape[:2]), labels


class _Views(Dataset[Any]):
    """(N, V, H, W, 3) bytes, labels (N,), problems; bad images are left out."""

    def __init__(self, source: ImageSource, parts: tuple[Tensor, ...], views: Callable[..., Any]) -> None:
        self.source, self.parts, self.views = source, parts, views

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, Problems]:
        images, kept = [], []
        problems: Problems = []
        for sample in self.parts[number].tolist():
            try:
                images.append(torch.from_numpy(self.views(self.source.read(sample)).copy()))
                kept.append(sample)
            except BadImageError as error:
                problems.append((self.source.name(sample), str(error)))
        stacked = torch.stack(images) if images else torch.zeros(0, 1, 1, 1, 3, dtype=torch.uint8)
        return stacked, self.source.labels[torch.tensor(kept, dtype=torch.long)], problems
