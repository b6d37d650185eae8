"""Batches of test images from memory: each image as it is, or several views of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from epitomic.data.feed import Batch
from epitomic.data.small.splits import Split
from epitomic.data.standardisation import Standardize

BATCH = 500  # images
VIEWS = ("one", "mirrored", "shifted", "nudged")  # explained at `view_batches`
# Top left corners of the shifted views in the image padded by one pixel.
CORNERS = {"mirrored": (), "shifted": ((0, 0), (2, 2)), "nudged": ((0, 0), (2, 2), (0, 2), (2, 0))}


def plain_batches(split: Split, standardize: Standardize) -> Iterator[Batch]:
    """Yields all images as they are, standardised."""
    for images, labels in zip(split.images.split(BATCH), split.labels.split(BATCH), strict=True):
        yield standardize(images.float().div_(255)), labels


def view_batches(split: Split, standardize: Standardize, views: str) -> Iterator[Batch]:
    """Yields several views of each image, (N, views, C, H, W); average their class probabilities.

    Pixels that a shift brings in from outside are the image mirrored at its border.

    Args:
        split: The images.
        standardize: Standardisation of the training.
        views: ``"one"`` for the image as it is, (N, C, H, W). ``"mirrored"`` adds the mirror image. ``"shifted"`` adds
            to both a copy shifted by one pixel up and left, and one down and right. ``"nudged"`` is the image and
            copies shifted by one pixel towards each corner; it suits digits, which must not be mirrored.
    """
    if views == "one":
        yield from plain_batches(split, standardize)
        return
    for images, labels in plain_batches(split, standardize):
        h, w = images.shape[2:]
        padded = F.pad(images, (1, 1, 1, 1), mode="reflect")
        seen = [images, *(padded[:, :, y : y + h, x : x + w] for y, x in CORNERS[views])]
        if views != "nudged":
            seen += [view.flip(3) for view in seen]
        yield torch.stack(seen, 1), labels  # (N, views, C, H, W)
