"""Published architectures, narrow enough to test quickly: where convolution meets max-pooling in real networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LeNet(nn.Module):
    """LeCun et al. 1998, as tutorials write it: one pooling module for two convolutions, functional ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(16 * 5 * 5, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(torch.tanh(self.conv2(x)))
        return self.head(x.flatten(1))


class VGG(nn.Module):
    """VGG-11 (Simonyan and Zisserman 2014) at an eighth of its width, with or without batch normalisation."""

    def __init__(self, batch_norm: bool = False) -> None:
        super().__init__()
        self.features = nn.Sequential(*self._layers(batch_norm))
        self.head = nn.Linear(64, 10)

    @staticmethod
    def _layers(batch_norm: bool) -> Iterator[nn.Module]:
        channels = 3
        for width in (8, "M", 16, "M", 32, 32, "M", 64, 64, "M", 64, 64, "M"):
            if isinstance(width, str):
                yield nn.MaxPool2d(2, 2)
                continue
            yield nn.Conv2d(channels, width, 3, padding=1)
            if batch_norm:
                yield nn.BatchNorm2d(width)
            yield nn.ReLU(inplace=True)
            channels = width

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))


class AlexNet(nn.Module):
    """Krizhevsky et al. 2012 with its two groups and its overlapping pooling; response normalisation after layer 1."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 12, 11, stride=4, padding=2), nn.ReLU(), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(12, 32, 5, padding=2, groups=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(32, 48, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(48, 32, 3, padding=1, groups=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


class Fire(nn.Module):
    def __init__(self, channels: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeeze, 1)
        self.expand1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.expand1(x)), torch.relu(self.expand3(x))], 1)


class SqueezeNet(nn.Module):
    """Iandola et al. 2016: max-pooling with ceil_mode, most of it after concatenations, where nothing can be fused."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)),
            *(Fire(16, 8, 16), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(32, 8, 24)),
        )
        self.head = nn.Conv2d(48, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x)).mean((2, 3))


class Block(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.down: nn.Module = nn.Identity()
        if stride > 1 or channels != width:
            self.down = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.down(x))


class ResNet(nn.Module):
    """ResNet (He et al. 2015) with its padded stem: 7 x 7 convolution, batch normalisation, padded max-pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.head(self.blocks(x).mean((2, 3)))


class AudioNet(nn.Module):
    """A network for raw audio in the manner of M5 (Dai et al. 2016): convolutions of sequences, each max-pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv1d(1, 16, 16, stride=4), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(4)),
            *(nn.Conv1d(16, 16, 3, padding=1), nn.LeakyReLU(), nn.MaxPool1d(2)),
            *(nn.Conv1d(16, 32, 3, padding=1, groups=2), nn.ELU(), nn.MaxPool1d(3, 2)),
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean(2))


@dataclass(frozen=True)
class Architecture:
    """A network to change.

    Attributes:
        make: Builds it.
        shape: Shape of its input.
        fused: Convolutions that `fuse_` takes in eval mode,
        trainable: and in training mode, where no batch normalisation may be folded.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    fused: tuple[str, ...]
    trainable: tuple[str, ...]


_VGG = tuple(f"features.{i}" for i in (0, 3, 8, 13, 18))
_VGG_BN = tuple(f"features.{i}" for i in (0, 4, 11, 18, 25))
_AUDIO = ("features.0", "features.4", "features.7")
ARCHITECTURES = {
    "audio": Architecture(AudioNet, (2, 1, 800), _AUDIO, _AUDIO[1:]),
    "lenet": Architecture(LeNet, (2, 1, 28, 28), ("conv1", "conv2"), ("conv1", "conv2")),
    "vgg": Architecture(VGG, (2, 3, 32, 32), _VGG, _VGG),
    "vgg_bn": Architecture(lambda: VGG(batch_norm=True), (2, 3, 32, 32), _VGG_BN, ()),
    "alexnet": Architecture(AlexNet, (2, 3, 127, 127), ("features.4", "features.9"), ("features.4", "features.9")),
    "squeezenet": Architecture(SqueezeNet, (2, 3, 64, 64), ("features.0",), ("features.0",)),
    "resnet": Architecture(ResNet, (2, 3, 64, 64), ("conv1",), ()),
}
