"""A network as a black-box feature extractor: the paper's Caltech-101 experiment.

Feature vectors of unit length go into a support vector machine, one against one, by libsvm (through scikit-learn) with
its default C.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor, nn

from epitomic.analysis.features import Features
from epitomic.support.console import Tell, tell_nobody
from epitomic.support.errors import UserError
from epitomic.support.rng import generator

# Name -> how it is called in tables. The paper names libsvm and its default C only, so both usual gammas are here.
KERNELS = {
    "linear": "linear",
    "rbf-libsvm": "RBF, gamma 1 / features (libsvm's default)",
    "rbf": "RBF, gamma by scikit-learn's `scale`",
}


def measure_transfer(
    features: Features,
    *,
    kernel: str = "linear",
    per_class: int = 30,
    splits: int = 5,
    seed: int = 0,
    tell: Tell = tell_nobody,
) -> dict[str, Any]:
    """Trains and tests the classifier on random splits; returns the figures as transfer.json keeps them.

    Args:
        features: Features of all images.
        kernel: One of `KERNELS`.
        per_class: Images of each class to train on. The others are tested.
        splits: Number of random splits.
        seed: Seed of the splits.
        tell: Called with the progress.
    """
    masks = [choose_training(features.labels, features.classes, per_class, seed, split) for split in range(splits)]
    classifier = Classifier(features, kernel)
    accuracies: list[float] = []
    for mask in masks:
        tell(f"{kernel} kernel, split {len(accuracies) + 1} of {splits}", len(accuracies) / splits)
        accuracies.append(classifier.accuracy(mask))
    return {
        "numbers": features.vectors.shape[1],
        "kernel": kernel,
        "train_per_class": per_class,
        "seed": seed,
        "images": len(features.vectors),
        "classes": len(features.classes),
        "mean": statistics.mean(accuracies),
        "standard_deviation": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        "accuracies": accuracies,  # mean per-class accuracy of each split
    }


def choose_training(labels: Tensor, classes: tuple[str, ...], per_class: int, seed: int, split: int) -> Tensor:
    """Chooses ``per_class`` random images of each class: a mask, (N,), that depends on the arguments alone.

    Raises:
        UserError: If a class would have no images left to test.
    """
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for number, name in enumerate(classes):
        members = (labels == number).nonzero()[:, 0]
        if len(members) <= per_class:
            raise UserError(
                f"class {name!r} has {len(members)} images, and --train-per-class {per_class} leaves none to test: "
                "it must be smaller"
            )
        order = torch.randperm(len(members), generator=generator("transfer", seed, split, number))
        chosen[members[order[:per_class]]] = True
    return chosen


class Classifier:
    """The paper's support vector machine on one set of features, for any number of splits.

    All inner products are computed once, and each split uses some rows and columns of them. libsvm gets the values of
    the kernel instead of the vectors. It finds the same machine in a fraction of the time.

    Args:
        features: Features of all images. Their vectors are scaled to unit length here.
        kernel: One of `KERNELS`.
    """

    def __init__(self, features: Features, kernel: str) -> None:
        self.labels, self.classes, self.kernel = features.labels, features.classes, kernel
        self.vectors = nn.functional.normalize(features.vectors.float(), dim=1)
        products = self.vectors @ self.vectors.mT
        self.products = products.double()  # (N, N)

    def accuracy(self, training: Tensor) -> float:
        """Trains on the images of the mask ``training`` and tests on the others: the mean accuracy of the classes."""
        from sklearn.svm import SVC

        kernel = self._values(training)
        rows, columns = training.nonzero()[:, 0], (~training).nonzero()[:, 0]
        machine = SVC(kernel="precomputed", decision_function_shape="ovo")
        machine.fit(kernel[rows][:, rows].numpy(), self.labels[rows].numpy())
        guesses = torch.from_numpy(machine.predict(kernel[columns][:, rows].numpy()))
        right, truth = (guesses == self.labels[columns]).double(), self.labels[columns]
        counts = torch.bincount(truth, minlength=len(self.classes)).double()
        return float((torch.bincount(truth, right, minlength=len(self.classes)) / counts).mean())

    def _values(self, training: Tensor) -> Tensor:
        """Values of the kernel for all pairs of images, (N, N)."""
        if self.kernel == "linear":
            return self.products
        gamma = 1 / self.vectors.shape[1]  # libsvm's default
        if self.kernel == "rbf":  # scikit-learn's "scale"
            gamma /= float(self.vectors[training].double().var(correction=0))
        lengths = self.products.diagonal()
        return torch.exp(-gamma * (lengths[:, None] + lengths[None, :] - 2 * self.products))
