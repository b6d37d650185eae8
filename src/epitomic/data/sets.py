"""The image sets: where their files are, what they must hold, and the splits made of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from epitomic.data.cifar import read_binary, read_pickled
from epitomic.data.download import fetch
from epitomic.data.idx import read_idx
from epitomic.errors import UserError, unknown
from epitomic.rng import generator

DATA_VARIABLE = "EPITOMIC_DATA"


@dataclass(frozen=True)
class Split:
    """Images and their labels.

    Attributes:
        images: (N, C, H, W), uint8.
        labels: (N,), int64.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Tensor) -> Split:
        """Some of them."""
        return Split(self.images[indices], self.labels[indices])


@dataclass(frozen=True)
class ImageSet:
    """A set in memory.

    Attributes:
        name: Of the set.
        classes: Their names, in the order of the labels.
        train: All that may be learned from; see `hold_out`.
        test: What is looked at once, at the end.
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split

    @property
    def channels(self) -> int:
        """Of the images."""
        return self.train.images.shape[1]

    @property
    def image_size(self) -> int:
        """Height and width of the images."""
        return self.train.images.shape[2]


@dataclass(frozen=True)
class IdxSource:
    """A set of four IDX files under ``folder``, as torchvision lays them out, each with its official SHA-256."""

    folder: str
    urls: tuple[str, ...]
    classes: tuple[str, ...]
    train_images: str
    train_labels: str
    test_images: str
    test_labels: str

    def load(self, root: Path) -> tuple[Split, Split]:
        """Training and test set."""
        folder = root / self.folder
        return (
            self._split(folder, "train", self.train_images, self.train_labels),
            self._split(folder, "t10k", self.test_images, self.test_labels),
        )

    def _split(self, folder: Path, prefix: str, images_sha256: str, labels_sha256: str) -> Split:
        files = {f"{prefix}-images-idx3-ubyte.gz": images_sha256, f"{prefix}-labels-idx1-ubyte.gz": labels_sha256}
        fetch(folder, files, self.urls)
        (images_path, labels_path) = (folder / name for name in files)
        images, labels = read_idx(images_path, dims=3), read_idx(labels_path, dims=1)
        if len(images) != len(labels):
            raise UserError(f"{labels_path} has {len(labels)} labels for the {len(images)} images of {images_path}")
        check_labels(labels_path, labels, len(self.classes))
        for path, sha256 in zip((images_path, labels_path), files.values(), strict=True):
            check_sha256(path, path.read_bytes(), sha256)
        return Split(images.unsqueeze(1), labels.long())


@dataclass(frozen=True)
class CifarSource:
    """Six batches under either folder that torchvision and CIFAR's page know, with the binary ones' SHA-256.

    A pickled batch is checked by what it holds: laid out as the binary one, it must have that one's SHA-256.
    """

    binary_folder: str
    pickled_folder: str
    archive: str
    archive_sha256: str
    urls: tuple[str, ...]
    classes: tuple[str, ...]
    train: tuple[str, ...]
    test: tuple[str, ...]

    def load(self, root: Path) -> tuple[Split, Split]:
        """Training and test set."""
        train = {f"data_batch_{i}": sha256 for i, sha256 in enumerate(self.train, start=1)}
        test = dict(zip(("test_batch",), self.test, strict=True))
        folder, pickled = root / self.binary_folder, root / self.pickled_folder
        members = {f"{name}.bin": sha256 for name, sha256 in {**train, **test}.items()}
        if pickled.is_dir() and not all((folder / name).is_file() for name in members):
            return self._split(pickled, "", read_pickled, train), self._split(pickled, "", read_pickled, test)
        fetch(folder, members, self.urls, archive=(self.archive, self.archive_sha256))
        return self._split(folder, ".bin", read_binary, train), self._split(folder, ".bin", read_binary, test)

    def _split(self, folder: Path, suffix: str, read: Callable[[Path], Tensor], files: dict[str, str]) -> Split:
        records = []
        for name, sha256 in files.items():
            path = folder / f"{name}{suffix}"
            batch = read(path)  # (count, 1 + 3072)
            check_labels(path, batch[:, 0], len(self.classes))
            check_sha256(path, batch.numpy(), sha256)
            records.append(batch)
        batch = torch.cat(records)
        return Split(batch[:, 1:].reshape(-1, 3, 32, 32), batch[:, 0].long())


def check_labels(path: Path, labels: Tensor, classes: int) -> None:
    """An error that names the first label that is no class."""
    wrong = (labels >= classes).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise UserError(f"{path}: label {int(labels[first])} of image {first} is not one of 0 to {classes - 1}")


def check_sha256(path: Path, contents: object, sha256: str) -> None:
    """An error unless the contents are the official ones."""
    got = hashlib.sha256(contents).hexdigest()  # type: ignore[arg-type]
    if got != sha256:
        raise UserError(
            f"{path} is not the official file: its SHA-256 is {got}, not {sha256}; remove it to download it"
        )


DIGITS = tuple("0123456789")
SOURCES: dict[str, IdxSource | CifarSource] = {
    "mnist": IdxSource(
        folder="MNIST/raw",
        urls=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        classes=DIGITS,
        train_images="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        train_labels="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        test_images="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        test_labels="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "fashion-mnist": IdxSource(
        folder="FashionMNIST/raw",
        urls=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        classes=(
            *("t-shirt", "trouser", "pullover", "dress", "coat"),
            *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
        ),
        train_images="3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        train_labels="a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        test_images="346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        test_labels="67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
    "cifar10": CifarSource(
        binary_folder="cifar-10-batches-bin",
        pickled_folder="cifar-10-batches-py",
        archive="cifar-10-binary.tar.gz",
        archive_sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        urls=("https://www.cs.toronto.edu/~kriz/",),
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        train=(
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        ),
        test=("8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",),
    ),
}
NAMES = ("digits", *SOURCES)
DIGITS_TEST = 360  # of the 1,797 images that scikit-learn ships


def data_root(folder: str | Path | None = None) -> Path:
    """Where the sets are: ``folder``, else the environment's EPITOMIC_DATA, else the user's cache."""
    if folder or os.environ.get(DATA_VARIABLE):
        return Path(folder or os.environ[DATA_VARIABLE]).expanduser()
    from pooch import os_cache

    return Path(os_cache("epitomic"))


def load_set(name: str, folder: str | Path | None = None) -> ImageSet:
    """One of `NAMES`, whole, in memory; its files are downloaded if they are missing.

    Args:
        name: Of the set.
        folder: See `data_root`.
    """
    if name == "digits":
        return _digits()
    if name not in SOURCES:
        raise unknown("data set", name, NAMES)
    source = SOURCES[name]
    return ImageSet(name, source.classes, *source.load(data_root(folder)))


def _digits() -> ImageSet:
    """Handwritten digits of 8 x 8 pixels. The test set is 360 of 1,797, always the same, each class by its share."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)  # 64 values of 0 to 16
    pixels = (torch.from_numpy(images) * (255 / 16)).round().to(torch.uint8)
    train, test = hold_out(Split(pixels.reshape(-1, 1, 8, 8), torch.from_numpy(labels).long()), DIGITS_TEST, "test")
    return ImageSet("digits", DIGITS, train, test)


def hold_out(split: Split, count: int, purpose: str = "validation") -> tuple[Split, Split]:
    """Parts ``count`` samples from the rest: always the same ones, in equal parts by class.

    Returns:
        The rest, and the held-out samples, both in their old order.
    """
    if not 0 < count < len(split):
        raise UserError(
            f"the {purpose} set must have from 1 to {len(split) - 1} of the {len(split)} images, not {count}"
        )
    order = torch.randperm(len(split), generator=generator("hold out", purpose))
    by_class = order[split.labels[order].argsort(stable=True)]  # shuffled within each class
    held = torch.zeros(len(split), dtype=torch.bool)
    held[by_class[torch.arange(count) * len(split) // count]] = True  # equally spaced: each class by its share
    return split.take((~held).nonzero()[:, 0]), split.take(held.nonzero()[:, 0])
