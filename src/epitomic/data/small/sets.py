"""The small image sets that have a name, with their official files and checksums."""

from __future__ import annotations

from pathlib import Path

import torch

from epitomic.data.location import data_root
from epitomic.data.small.cifar import CifarSource
from epitomic.data.small.idx import IdxSource
from epitomic.data.small.splits import ImageSet, Split, hold_out
from epitomic.support.errors import unknown

DIGITS = tuple("0123456789")
SOURCES: dict[str, IdxSource | CifarSource] = {
    "mnist": IdxSource(
        folder="MNIST/raw",
        urls=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        classes=DIGITS,
        sha256=(
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "fashion-mnist": IdxSource(
        folder="FashionMNIST/raw",
        urls=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        classes=(
            *("t-shirt", "trouser", "pullover", "dress", "coat"),
            *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
        ),
        sha256=(
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    "cifar10": CifarSource(
        folder="cifar-10-batches-bin",
        pickled_folder="cifar-10-batches-py",
        archive="cifar-10-binary.tar.gz",
        archive_sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        urls=("https://www.cs.toronto.edu/~kriz/",),
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        sha256=(
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
    ),
}
NAMES = ("digits", *SOURCES)
DIGITS_TEST = 360  # test images among the 1,797 that scikit-learn ships


def load_set(name: str, folder: str | Path | None = None) -> ImageSet:
    """Reads a whole image set into memory; downloads its files if they are missing.

    Args:
        name: One of `NAMES`.
        folder: Folder with the image sets; see `data_root` for the default.
    """
    if name == "digits":
        return _digits()
    if name not in SOURCES:
        raise unknown("data set", name, NAMES)
    source = SOURCES[name]
    return ImageSet(name, source.classes, *source.load(data_root(folder)))


def _digits() -> ImageSet:
    """Returns scikit-learn's handwritten digits of 8 x 8 pixels, always with the same 360 test images."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)  # 64 values from 0 to 16 each
    pixels = (torch.from_numpy(images) * (255 / 16)).round().to(torch.uint8)
    train, test = hold_out(Split(pixels.reshape(-1, 1, 8, 8), torch.from_numpy(labels).long()), DIGITS_TEST, "test")
    return ImageSet("digits", DIGITS, train, test)
