"""Feature vectors of images: the output of a network's last fully-connected layer.

Every image is resized to the size that the network takes, without keeping its aspect ratio, and gives one vector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epitomic.data.photographs.loading import BadImages, ImageSource, default_workers
from epitomic.data.photographs.open import open_split
from epitomic.data.photographs.views import evaluation_batches
from epitomic.data.standardisation import Standardize
from epitomic.evaluation import on_device
from epitomic.models import create_model
from epitomic.models.pretrained import CONFIG
from epitomic.support.console import Tell, tell_nobody
from epitomic.support.errors import UserError, unknown
from epitomic.support.files import write_atomically
from epitomic.support.images import need_images, resize_square, to_array
from epitomic.support.tensorfile import DamagedFileError, load_tensors, save_tensors
from epitomic.training.run_folder import RunFolder

KINDS = {
    "network": "the network as trained",
    "untrained": "the same network before its training",
    "pixels": "the images themselves",
}


@dataclass(frozen=True)
class Features:
    """One vector for each image.

    Attributes:
        vectors: The vectors, (N, D), as the network gave them.
        labels: Class number of each image, (N,), int64.
        classes: Class names, in the order of the labels.
    """

    vectors: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def save(self, path: Path) -> None:
        """Writes .npz or .safetensors, as the suffix of ``path`` says."""
        if path.suffix == ".npz":
            write_atomically(path, self._save_arrays)
        else:
            save_tensors(path, {"vectors": self.vectors, "labels": self.labels}, {"classes": list(self.classes)})

    def _save_arrays(self, path: Path) -> None:
        import numpy as np

        with path.open("wb") as file:
            np.savez(
                file,
                classes=np.array(self.classes),
                vectors=self.vectors.numpy(),
                labels=self.labels.numpy(),
            )

    @classmethod
    def load(cls, path: Path) -> Features:
        """Reads a .safetensors file that `save` wrote, or raises `DamagedFileError`."""
        tensors, state = load_tensors(path)
        return cls(tensors["vectors"], tensors["labels"], tuple(state["classes"]))


def check_kind(kind: str) -> None:
    """Raises an error if ``kind`` is not one of `KINDS`."""
    if kind not in KINDS:
        raise unknown("--features", kind, KINDS)


def compute_features(
    run: RunFolder,
    data: Path,
    cache: Path,
    *,
    kind: str = "network",
    split: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    workers: int | None = None,
    tell: Tell = tell_nobody,
) -> Features:
    """Computes the vectors of a set of photographs, or takes them from the cache.

    Args:
        run: A run with weights, of a network for colour images.
        data: Class folders, or a store that `epitomic prepare` made.
        cache: Folder that keeps computed vectors.
        kind: One of `KINDS`.
        split: Split of ``data``, such as ``"val"``. None takes its train split, or all of ``data`` if it has no splits.
        seed: Seed of the untrained network.
        device: Device that the network runs on.
        workers: Number of processes that read images (default: half the cores, from 1 to 8).
        tell: Called with the progress.
    """
    check_kind(kind)
    need_images()
    model: Any = run.model
    config = run.config or {}
    if config.get("in_channels") != 3:
        channels = config.get("in_channels")
        raise UserError(f"{run.folder / CONFIG}: the network is for images of {channels} channels, not of 3")
    size = int(config["image_size"])
    source = open_split(data, split, 0)
    if kind == "untrained":
        model = as_initialised(model, seed)
    elif kind == "pixels":
        model = None
    weights = "pixels" if model is None else weights_digest(model)
    model = None if model is None else on_device(model, device)
    key = cache_key(weights, source.fingerprint, size, run.standardize)
    workers = default_workers() if workers is None else workers
    return cached(
        cache / f"{key}.safetensors",
        lambda: extract(model, source, size, run.standardize, workers=workers, tell=tell),
    )


def as_initialised(model: Any, seed: int) -> Any:
    """Makes the network as it was before its training. A whitening stays, because it was fitted and not trained."""
    torch.manual_seed(seed)
    untrained = create_model(model.config["model"], **{k: v for k, v in model.config.items() if k != "model"}).eval()
    fixed = {name: parameter for name, parameter in model.named_parameters() if not parameter.requires_grad}
    untrained.load_state_dict(fixed, strict=False)
    return untrained


@torch.no_grad()
def extract(
    model: nn.Module | None,
    source: ImageSource,
    size: int,
    standardize: Standardize,
    *,
    workers: int = 0,
    tell: Tell = tell_nobody,
) -> Features:
    """Computes the vectors of all images that can be read, in order.

    Args:
        model: A network with ``forward_features``, and with ``forward_head`` if those are maps. None takes the pixels
            as the vectors.
        source: The images.
        size: Height and width that they are resized to.
        standardize: Standardisation that the network was trained with.
        workers: Number of processes that read images.
        tell: Called with the progress.
    """
    vectors: list[Tensor] = []
    labels: list[Tensor] = []
    done = 0
    batches = evaluation_batches(source, squashed, size, standardize, workers=workers, bad=BadImages())
    for images, targets in batches:
        views = images[:, 0]  # (N, 3, size, size)
        if model is None:
            vectors.append(views.flatten(1))
        else:
            device = next(model.parameters()).device
            vectors.append(_last_vectors(model, views.to(device)).float().cpu())
        labels.append(targets)
        done += len(targets)
        tell(f"features of {done:,} of {len(source):,} images", done / len(source))
    return Features(torch.cat(vectors), torch.cat(labels), source.classes)


def _last_vectors(model: Any, views: Tensor) -> Tensor:
    """Returns what goes into the softmax layer, (N, D). Residual networks average their last maps first."""
    features: Tensor = model.forward_features(views)
    if features.dim() > 2:
        features = model.forward_head(features, pre_logits=True)
    return features


def squashed(image: Any, crop: int) -> Any:
    """Resizes the whole image to a square without keeping its aspect ratio: (1, crop, crop, 3), uint8."""
    return to_array(resize_square(image, crop))[None]


def cached(path: Path, compute: Callable[[], Features]) -> Features:
    """Returns the features that an earlier call left at ``path``, or computes and saves them."""
    if path.is_file():
        try:
            return Features.load(path)
        except (DamagedFileError, KeyError):
            pass  # computed again
    features = compute()
    features.save(path)
    return features


def cache_key(*parts: object) -> str:
    """A short name for features that depend on ``parts``, such as weights, images and size."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:20]


def weights_digest(model: nn.Module) -> str:
    """A text that changes with any weight of a network."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
