"""Figures on a set of images: error, top-1 and top-5 accuracy, and by class."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.data.batches import Standardize
from epitomic.data.sets import Split

BATCH = 500


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

    def report(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """All figures, as JSON can hold them."""
        from torchmetrics.functional.classification import multiclass_confusion_matrix

        count = len(self.labels)
        ranks = self.scores.topk(min(5, len(classes)), dim=1).indices  # (N, 5)
        hits = ranks == self.labels[:, None]
        matrix = multiclass_confusion_matrix(self.scores.argmax(1), self.labels, num_classes=len(classes))
        right, actual, predicted = matrix.diag(), matrix.sum(1), matrix.sum(0)
        return {
            "images": count,
            "error": self.errors / count,
            "errors": self.errors,
            "top1": float(hits[:, :1].sum()) / count,
            "top5": float(hits.sum()) / count,
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
    model: nn.Module,
    split: Split,
    standardize: Standardize,
    *,
    autocast: contextlib.AbstractContextManager[Any] | None = None,
) -> Scores:
    """Runs a network over images, as they are, in evaluation mode."""
    training = model.training
    model.eval()
    parameter = next(model.parameters())
    dtype = parameter.dtype if parameter.dtype == torch.float64 else torch.float32
    scores = []
    with autocast or contextlib.nullcontext():
        for images in split.images.split(BATCH):
            batch = standardize(images.to(dtype).div_(255)).to(parameter.device, memory_format=torch.channels_last)
            scores.append(model(batch).float().cpu())
    model.train(training)
    return Scores(torch.cat(scores) if scores else torch.empty(0), split.labels)
