"""The images that a network is surest about and gets wrong, and the classes that it confuses most often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epitomic.data.feed import Batch
from epitomic.data.photographs.crops import center_crop
from epitomic.data.photographs.loading import to_numbers
from epitomic.data.small.splits import Split
from epitomic.data.small.views import plain_batches
from epitomic.data.test_images import PhotographTest, SmallTest
from epitomic.evaluation import Scores, score
from epitomic.support.images import BadImageError
from epitomic.support.rng import generator

BATCH = 100  # photographs that are scored at once


@dataclass(frozen=True)
class Mistake:
    """One image that was classified wrongly.

    Attributes:
        index: Number of the image among those that were scored.
        label: Number of its true class.
        predicted: Number of the class that the network chose.
        probabilities: The most likely classes with their probabilities, the likeliest first.
        label_probability: Probability of the true class.
    """

    index: int
    label: int
    predicted: int
    probabilities: tuple[tuple[int, float], ...]
    label_probability: float


def surest_mistakes(scores: Scores, count: int = 12, classes: int = 3) -> list[Mistake]:
    """Finds the wrongly classified images that the network is surest about, the surest first.

    Their labels are often wrong, so they are the first to look at when data are to be mended.

    Args:
        scores: The network's scores and the labels.
        count: Largest number of mistakes to find.
        classes: Number of most likely classes to name for each.
    """
    probabilities = scores.scores.double().softmax(1)  # (N, classes)
    own = probabilities.gather(1, scores.labels[:, None])[:, 0]
    highest = probabilities.amax(1)
    wrong = (scores.scores.argmax(1) != scores.labels).nonzero()[:, 0].tolist()
    found = []
    for index in sorted(wrong, key=lambda i: (-float(highest[i]), float(own[i])))[:count]:
        top = probabilities[index].topk(min(classes, probabilities.shape[1]))
        likely = tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True))
        found.append(Mistake(index, int(scores.labels[index]), likely[0][0], likely, float(own[index])))
    return found


@dataclass(frozen=True)
class Tested:
    """What a network says about test images, seen once each, by the centre crop if they are photographs.

    Attributes:
        scores: The scores and labels.
        numbers: Number of each image in the test set; images that cannot be read are left out.
    """

    scores: Scores
    numbers: list[int]


def score_test_images(model: nn.Module, test: SmallTest | PhotographTest, most: int) -> Tested:
    """Runs a network over at most ``most`` test images: the first of a small set, or a random choice of photographs."""
    if isinstance(test, SmallTest):
        seen = Split(test.split.images[:most], test.split.labels[:most])
        return Tested(score(model, plain_batches(seen, test.standardize)), list(range(len(seen))))
    chosen = torch.randperm(len(test.source), generator=generator("looked at"))[:most]
    numbers: list[int] = []
    return Tested(score(model, _centre_crops(test, chosen, numbers)), numbers)


def _centre_crops(test: PhotographTest, chosen: Tensor, numbers: list[int]) -> Iterator[Batch]:
    """Yields the chosen images that can be read, and adds their numbers to ``numbers``."""
    for chunk in chosen.split(BATCH):
        crops = []
        for number in chunk.tolist():
            try:
                crops.append(torch.from_numpy(center_crop(test.source.pixels(number), test.crop)[0].copy()))
            except BadImageError:
                continue
            numbers.append(number)
        if crops:
            labels = test.source.labels[torch.tensor(numbers[-len(crops) :])]
            yield to_numbers(torch.stack(crops), test.standardize), labels


def mistaken_images(
    test: SmallTest | PhotographTest, numbers: Sequence[int], names: Sequence[str] = ()
) -> tuple[list[Tensor], list[str]]:
    """Returns test images as the network sees them, as bytes, (C, H, W), and their paths or numbers.

    Args:
        test: The test images.
        numbers: Numbers of the images to return.
        names: Paths of all images of a small set, if they are known.
    """
    if isinstance(test, SmallTest):
        return [test.split.images[i] for i in numbers], [names[i] if names else f"test image {i}" for i in numbers]
    crops = (center_crop(test.source.pixels(i), test.crop)[0] for i in numbers)  # (H, W, C)
    return [torch.from_numpy(crop.copy()).permute(2, 0, 1) for crop in crops], [test.source.name(i) for i in numbers]


def confused_pairs(matrix: Sequence[Sequence[int]], count: int = 10) -> list[tuple[int, int, int]]:
    """The most frequent confusions as (true class, predicted class, images), the most frequent first.

    >>> confused_pairs([[5, 2], [1, 7]])
    [(0, 1, 2), (1, 0, 1)]
    """
    pairs = [(i, j, int(n)) for i, row in enumerate(matrix) for j, n in enumerate(row) if i != j and n]
    return sorted(pairs, key=lambda pair: -pair[2])[:count]


def hardest_classes(matrix: Sequence[Sequence[int]], count: int = 20) -> list[int]:
    """The classes of which the largest share is classified wrongly, the hardest first. All have a wrong image.

    >>> hardest_classes([[5, 2], [0, 7]])
    [0]
    """
    errors = {i: 1 - row[i] / sum(row) for i, row in enumerate(matrix) if sum(row) > row[i]}
    return sorted(errors, key=lambda i: -errors[i])[:count]
