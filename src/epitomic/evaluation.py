"""Figures on a set of images: error, top-1 and top-5 accuracy, and by class."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.data.feed import Batch

# In results where the test figures average over several views of each image: how else they were looked at, by name.
OTHER_WAYS = {"plain": "plain", "center": "centre crop"}


@dataclass(frozen=True)
class Scores:
    """A network's scores before the softmax, (N, classes), and the labels, (N,)."""

    scores: Tensor
    labels: Tensor

    @property
    def loss(self) -> float:
        """The mean log-loss."""
        return F.cross_entropy(self.scores, self.labels).item()

    @property
    def errors(self) -> int:
        """How many images are classified wrongly."""
        return int((self.scores.argmax(1) != self.labels).sum())

    @property
    def top5_errors(self) -> int:
        """Of how many images the label is not among the five highest scores."""
        highest = self.scores.topk(min(5, self.scores.shape[1]), dim=1).indices
        return len(self.labels) - int((highest == self.labels[:, None]).sum())

    def report(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """All figures, as JSON can hold them."""
        from torchmetrics.functional.classification import multiclass_confusion_matrix

        count = len(self.labels)
        matrix = multiclass_confusion_matrix(self.scores.argmax(1), self.labels, num_classes=len(classes))
        right, actual, predicted = matrix.diag(), matrix.sum(1), matrix.sum(0)
        return {
            "images": count,
            "error": self.errors / count,
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
            "confusion": matrix.tolist(),  # rows: the label; columns: the prediction
        }


@torch.no_grad()
def score(
    model: nn.Module, batches: Iterable[Batch], *, autocast: contextlib.AbstractContextManager[Any] | None = None
) -> Scores:
    """Runs a network over images in evaluation mode.

    Where a batch has several views of each image, (N, V, C, H, W), their class probabilities are averaged, and the
    score is the logarithm of the average.
    """
    training = model.training
    model.eval()
    parameter = next(model.parameters())
    dtype = parameter.dtype if parameter.dtype == torch.float64 else torch.float32
    scores, labels = [], []
    with autocast or contextlib.nullcontext():
        for images, targets in batches:
            views = images.flatten(0, -4) if images.dim() == 5 else images
            outputs = model(views.to(parameter.device, dtype, memory_format=torch.channels_last)).float()
            if images.dim() == 5 and images.shape[1] > 1:
                outputs = average_probabilities(outputs.unflatten(0, images.shape[:2]))
            scores.append(outputs.cpu())
            labels.append(targets)
    model.train(training)
    if not scores:
        return Scores(torch.empty(0, 1), torch.empty(0, dtype=torch.long))
    return Scores(torch.cat(scores), torch.cat(labels))


def average_probabilities(scores: Tensor) -> Tensor:
    """(N, V, classes) of V views to (N, classes): the logarithm of the mean of their class probabilities."""
    return scores.log_softmax(2).logsumexp(1) - math.log(scores.shape[1])
