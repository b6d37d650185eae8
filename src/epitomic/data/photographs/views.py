"""Batches of photographs to test on: one or several crops of each image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from epitomic.data.feed import BAD_SHARE, Batch, too_many
from epitomic.data.photographs.crops import ten_crops
from epitomic.data.photographs.loading import BadImages, ImageSource, Problems, load_in_order, shared_bytes, to_numbers
from epitomic.data.standardisation import Standardize
from epitomic.support.images import BadImageError

BATCH = 100  # views


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
    """Yields V views of each image, (N, V, 3, crop, crop), and the labels, (N,).

    Bad images are left out and noted.

    Args:
        source: The images.
        views: Function that makes the views of an image, (V, crop, crop, 3) bytes, such as `crops.ten_crops`.
        crop: Height and width of the views.
        standardize: Standardisation of the training.
        samples: Numbers of the images to take (default: all).
        workers: Number of processes that read images.
        device: Device that the images go to.
        bad: Where to note bad images.

    Raises:
        UserError: If too large a share of the images is bad.
    """
    bad, count = BadImages() if bad is None else bad, 0
    samples = torch.arange(len(source)) if samples is None else samples
    at_once = BATCH // 10 if views is ten_crops else BATCH
    read = partial(_read_views, source, partial(views, crop=crop))
    for images, labels, problems in load_in_order(read, samples.split(at_once), workers, device):
        bad.note(problems)
        count += len(problems)
        if count > BAD_SHARE * len(samples):
            raise too_many(count, len(samples), bad)
        if len(labels):
            numbers = to_numbers(images.to(device, non_blocking=True).flatten(0, 1), standardize)
            yield numbers.unflatten(0, images.shape[:2]), labels


def _read_views(source: ImageSource, views: Callable[..., Any], samples: Tensor) -> tuple[Tensor, Tensor, Problems]:
    """Returns views, (N, V, H, W, 3) bytes, labels, (N,), and problems. Bad images are left out."""
    kept: list[int] = []
    problems: Problems = []
    images = torch.zeros(0, 1, 1, 1, 3, dtype=torch.uint8)
    for sample in samples.tolist():
        try:
            made = views(source.pixels(sample))  # (V, H, W, 3)
        except BadImageError as error:
            problems.append((source.name(sample), str(error)))
            continue
        if not kept:
            images = shared_bytes(len(samples), *made.shape)
        images.numpy()[len(kept)] = made  # the one copy, from the decoder to shared memory
        kept.append(sample)
    return images[: len(kept)], source.labels[torch.tensor(kept, dtype=torch.long)], problems
