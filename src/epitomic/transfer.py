"""A network as a black-box feature extractor: the paper's Caltech-101 experiment.

Every image is resized to the size that the network takes, its aspect not kept, and gives one vector: the output of the
last fully-connected layer. Vectors of unit length go into a support vector machine, one against one, by libsvm (through
scikit-learn) with its default C.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epitomic.data.batches import Standardize
from epitomic.data.pixels import resize_square, to_array
from epitomic.data.views import BadImages, ImageSource, evaluation_batches
from epitomic.errors import UserError
from epitomic.rng import generator
from epitomic.tensorfile import DamagedFileError, load_tensors, save_tensors

KINDS = ("network", "untrained", "pixels")
KERNELS = ("linear", "rbf")


def squashed(image: Any, crop: int) -> Any:
    """(1, crop, crop, 3), uint8: the whole image, its aspect not kept."""
    return to_array(resize_square(image, crop))[None]


@dataclass(frozen=True)
class Features:
    """One vector an image.

    Attributes:
        vectors: (N, D), as the network gave them.
        labels: (N,), int64.
        classes: Names, in the order of the labels.
    """

    vectors: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def save(self, path: Path) -> None:
        """Writes safetensors."""
        save_tensors(path, {"vectors": self.vectors, "labels": self.labels}, {"classes": list(self.classes)})

    @classmethod
    def load(cls, path: Path) -> Features:
        """What `save` wrote; `DamagedFileError` if it is not."""
        tensors, state = load_tensors(path)
        return cls(tensors["vectors"], tensors["labels"], tuple(state["classes"]))


@torch.no_grad()
def extract(
    model: nn.Module | None, source: ImageSource, size: int, standardize: Standardize, *, workers: int = 0
) -> Features:
    """The vectors of all images that can be read, in order.

    Args:
        model: A network with ``forward_features``. None: the vectors are the pixels.
        source: The images.
        size: Height and width that they are resized to.
        standardize: As in training.
        workers: Processes that read images.
    """
    vectors, labels = [], []
    bad = BadImages()
    for images, targets in evaluation_batches(source, squashed, size, standardize, workers=workers, bad=bad):
        views = images[:, 0]  # (N, 3, size, size)
        if model is None:
            vectors.append(views.flatten(1))
        else:
            device = next(model.parameters()).device
            vectors.append(model.forward_features(views.to(device)).float().cpu())  # type: ignore[operator]
        labels.append(targets)
    return Features(torch.cat(vectors), torch.cat(labels), source.classes)


def cached(path: Path, make: Any) -> Features:
    """What ``make()`` gives, or what an earlier call left at ``path``."""
    if path.is_file():
        try:
            return Features.load(path)
        except (DamagedFileError, KeyError):
            pass  # made anew
    features: Features = make()
    features.save(path)
    return features


def cache_key(*parts: object) -> str:
    """A short name for features that depend on ``parts``: weights, images, size."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:20]


def weights_digest(model: nn.Module) -> str:
    """Of all tensors of a network."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def choose_training(labels: Tensor, classes: tuple[str, ...], per_class: int, seed: int, split: int) -> Tensor:
    """(N,), bool: ``per_class`` images of each class at random, a function of the arguments alone.

    Raises:
        UserError: If a class has no more than that.
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

    All inner products are computed once; a split then takes its rows and columns of them. libsvm gets the kernel's
    values instead of the vectors, and so finds the same machine as from the vectors, in a fraction of the time.

    Args:
        features: Of all images; their vectors are scaled to unit length here.
        kernel: ``"linear"``, or ``"rbf"`` with scikit-learn's default gamma.
    """

    def __init__(self, features: Features, kernel: str) -> None:
        self.labels, self.classes, self.kernel = features.labels, features.classes, kernel
        self.vectors = nn.functional.normalize(features.vectors.float(), dim=1)
        products = self.vectors @ self.vectors.T
        self.products = products.double()  # (N, N)

    def accuracy(self, training: Tensor) -> float:
        """Trains on some images and tests on the others: the mean of the classes' accuracies."""
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
        if self.kernel == "linear":
            return self.products
        chosen = self.vectors[training].double()
        gamma = 1 / (chosen.shape[1] * float(chosen.var(correction=0)))  # scikit-learn's "scale"
        lengths = self.products.diagonal()
        return torch.exp(-gamma * (lengths[:, None] + lengths[None, :] - 2 * self.products))


def transfer(
    features: Features, *, kernel: str = "linear", per_class: int = 30, splits: int = 5, seed: int = 0
) -> list[float]:
    """The mean per-class accuracy of each of several random splits."""
    masks = [choose_training(features.labels, features.classes, per_class, seed, split) for split in range(splits)]
    classifier = Classifier(features, kernel)
    return [classifier.accuracy(mask) for mask in masks]
