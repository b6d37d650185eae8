"""Scores of a network on images, and the figures that follow: error, top-1 and top-5 accuracy, figures by class."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.data.feed import Batch
from epitomic.support.errors import UserError

# Second test of a run whose first averages over several views of each image: key in the results -> name for readers.
OTHER_WAYS = {"plain": "one view", "center": "centre crop"}

FIVE = 5  # classes; with no more than these, the top-5 error is 0 and says nothing
UNEVEN = 1.5  # classes are uneven if the largest has more than this many times the images of the smallest


@dataclass(frozen=True)
class Scores:
    """What a network said about some images.

    Attributes:
        scores: Scores before the softmax, (N, classes).
        labels: Class numbers, (N,).
    """

    scores: Tensor
    labels: Tensor

    @property
    def loss(self) -> float:
        """Mean cross-entropy."""
        return F.cross_entropy(self.scores, self.labels).item()

    @property
    def errors(self) -> int:
        """Number of images that are classified wrongly."""
        return int((self.scores.argmax(1) != self.labels).sum())

    @property
    def top5_errors(self) -> int:
        """Number of images whose label is not among the five highest scores."""
        highest = self.scores.topk(min(5, self.scores.shape[1]), dim=1).indices  # (N, 5)
        return len(self.labels) - int((highest == self.labels[:, None]).sum())

    @property
    def ranks(self) -> str:
        """Place of the label among the scores, a character for each image: 1 to 5, or - if it is further down.

        >>> Scores(torch.tensor([[0.2, 0.7, 0.1], [0.2, 0.7, 0.1]]), torch.tensor([1, 0])).ranks
        '12'
        """
        highest = self.scores.topk(min(5, self.scores.shape[1]), dim=1).indices  # (N, 5)
        found = highest == self.labels[:, None]
        places = torch.where(found.any(1), found.int().argmax(1) + 1, 0)
        return "".join("-12345"[place] for place in places.tolist())

    def confusion(self, classes: int) -> Tensor:
        """Returns the number of images by label (row) and prediction (column), (classes, classes)."""
        pairs = classes * self.labels + self.scores.argmax(1)
        return torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)

    def report(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """Returns all figures, as JSON can hold them."""
        count = len(self.labels)
        matrix = self.confusion(len(classes))
        right, actual, predicted = matrix.diag(), matrix.sum(1), matrix.sum(0)
        return {
            "images": count,
            "error": self.errors / count,
            "class_error": float((1 - right[actual > 0] / actual[actual > 0]).mean()),
            "errors": self.errors,
            "top1": 1 - self.errors / count,
            "top5": 1 - self.top5_errors / count,
            "loss": self.loss,
            "classes": {
                name: {
                    "images": int(actual[i]),
                    "recall": float(right[i] / actual[i]) if actual[i] else None,
                    "precision": float(right[i] / predicted[i]) if predicted[i] else None,
                }
                for i, name in enumerate(classes)
            },
            "confusion": matrix.tolist(),
            "ranks": self.ranks,
        }


def uneven_error(report: dict[str, Any]) -> float | None:
    """Returns the mean error over the classes of a `Scores.report` if its classes are uneven, else None.

    Classes are uneven if the largest has more than 1.5 times the images of the smallest.
    """
    counts = [row["images"] for row in report.get("classes", {}).values() if row["images"]]
    return report.get("class_error") if counts and max(counts) > UNEVEN * min(counts) else None


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Puts a network into evaluation mode inside the block, and back into its own mode after it."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@torch.no_grad()
def score(
    model: nn.Module, batches: Iterable[Batch], *, autocast: contextlib.AbstractContextManager[Any] | None = None
) -> Scores:
    """Runs a network over images in evaluation mode.

    If a batch has several views of each image, (N, V, C, H, W), their class probabilities are averaged, and the score
    is the logarithm of the average.

    Args:
        model: The network.
        batches: Standardised images and labels.
        autocast: Context to compute in, such as ``torch.autocast`` (default: none).
    """
    parameter = next(model.parameters())
    dtype = parameter.dtype if parameter.dtype == torch.float64 else torch.float32
    scores, labels = [], []
    with evaluating(model), autocast or contextlib.nullcontext():
        for images, targets in batches:
            views = images.flatten(0, -4) if images.dim() == 5 else images  # (N * V, C, H, W)
            outputs = model(views.to(parameter.device, dtype, memory_format=torch.channels_last)).float()
            if images.dim() == 5 and images.shape[1] > 1:
                outputs = average_probabilities(outputs.unflatten(0, images.shape[:2]))
            scores.append(outputs.cpu())
            labels.append(targets)
    if not scores:
        return Scores(torch.empty(0, 1), torch.empty(0, dtype=torch.long))
    return Scores(torch.cat(scores), torch.cat(labels))


def average_probabilities(scores: Tensor) -> Tensor:
    """Returns the logarithm of the mean class probabilities of V views: (N, V, classes) -> (N, classes)."""
    return scores.log_softmax(2).logsumexp(1) - math.log(scores.shape[1])


def on_device(model: nn.Module, name: str) -> nn.Module:
    """Moves a network to the device that ``--device`` names, or raises an error if that cannot be used."""
    try:
        return model.to(torch.device(name))
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"cannot use --device {name} here: {str(error).splitlines()[0]}") from None
