"""A small residual network of today in which every downsampling step is an epitomic layer, and its twins.

After He et al., "Deep Residual Learning for Image Recognition" (2016, https://arxiv.org/abs/1512.03385). The stem and
the first layer of each stage halve the image. Residual blocks of two 3 x 3 convolutions keep its size:

    3 x 64 x 64  ->  24 x 32 x 32  ->  40 x 16 x 16  ->  72 x 8 x 8  ->  128 x 4 x 4  ->  304 x 2 x 2  ->  304  ->  100
                     stem              stage 1           stage 2         stage 3          stage 4          mean

The networks differ only in how they halve the image. All have 3 x 3 filters there and ceil(n / 2) outputs for n pixels:

- ``epitomic``: an epitomic layer with D = 2 (Eq. 2 of Papandreou's paper);
- ``strided``: a convolution with stride 2;
- ``maxpool``: convolution + max-pooling (Eq. 1), computed as one layer by `MaxPoolConv2d`;
- ``blur``: a convolution, then `BlurPool` (Zhang, "Making Convolutional Networks Shift-Invariant Again", 2019,
  https://arxiv.org/abs/1904.11486).
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.layers import EpitomicConv2d, MaxPoolConv2d
from epitomic.models.blocks import check_image_size, initialize, scale_channels
from epitomic.models.registry import register
from epitomic.support.errors import UserError

CHANNELS = (24, 40, 72, 128, 304)  # outputs of the stem and of the four stages
KINDS = ("epitomic", "strided", "maxpool", "blur")
POOL = 2  # D


class ResNet(nn.Module):
    """Stem, four stages, a mean over all positions, and the softmax layer, with timm's interface.

    Args:
        kind: How the image is halved: ``"epitomic"``, ``"strided"``, ``"maxpool"`` or ``"blur"``.
        num_classes: Number of classes; 0 leaves the softmax layer out.
        in_channels: Number of image channels.
        image_size: Height and width of the images, at least 32. The weights do not depend on it.
        width: Factor on the channels.
        depth: Residual blocks in each stage.
        dropout: Dropout rate in front of the softmax layer.
        features_only: Whether `forward` returns the outputs of the stem and of all stages instead of class scores.

    Attributes:
        num_features: Number of values in front of the softmax layer.
        feature_info: Name, number of channels and reduction of the image for each output of ``features_only``.
    """

    def __init__(
        self,
        kind: str,
        *,
        num_classes: int,
        in_channels: int,
        image_size: int,
        width: float,
        depth: int = 1,
        dropout: float = 0.0,
        features_only: bool = False,
    ) -> None:
        super().__init__()
        check_image_size("residual", image_size, minimum=32)
        if kind not in KINDS:
            raise UserError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if depth < 1:
            raise UserError(f"depth must be at least 1, got {depth}")
        channels = [scale_channels(c, width) for c in CHANNELS]
        self.features_only = features_only
        self.stem = Halving(kind, in_channels, channels[0])
        stages: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (inputs, outputs) in enumerate(itertools.pairwise(channels), start=1):
            blocks = [Residual(outputs) for _ in range(depth)]
            stages[f"stage{number}"] = nn.Sequential(Halving(kind, inputs, outputs), *blocks)
        self.features = nn.Sequential(stages)
        names = ["stem", *(f"features.{name}" for name in stages)]
        self.feature_info: list[dict[str, Any]] = [
            {"module": name, "num_chs": count, "reduction": POOL ** (number + 1)}
            for number, (name, count) in enumerate(zip(names, channels, strict=True))
        ]
        self.num_features = channels[-1]
        self.num_classes = num_classes
        self.dropout = nn.Dropout(dropout)
        self.out: nn.Module = nn.Linear(self.num_features, num_classes)
        initialize(self)
        for block in self.modules():
            if isinstance(block, Residual):
                nn.init.zeros_(block.norm2.weight)  # a block starts as the identity

    def forward_features(self, x: Tensor) -> Tensor:
        """Returns the output of the last stage, (N, num_features, H / 32, W / 32)."""
        return self.features(self.stem(x))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Returns the class scores for the output of `forward_features`, or what goes into the softmax layer."""
        x = self.dropout(x.mean((2, 3)))  # (N, num_features)
        return x if pre_logits else self.out(x)

    def forward_intermediates(self, x: Tensor) -> list[Tensor]:
        """Returns the outputs of the stem and of each stage, as `feature_info` describes them."""
        found = [self.stem(x)]
        for stage in self.features:
            found.append(stage(found[-1]))
        return found

    def forward(self, x: Tensor) -> Any:
        """Returns the class scores before the softmax, (N, num_classes), or the list of features."""
        if self.features_only:
            return self.forward_intermediates(x)
        return self.forward_head(self.forward_features(x))

    def get_classifier(self) -> nn.Module:
        """Returns the softmax layer."""
        return self.out

    def reset_classifier(self, num_classes: int) -> None:
        """Replaces the softmax layer by a new one; 0 classes leave it out."""
        self.num_classes = num_classes
        if isinstance(getattr(self, "config", None), dict):
            self.config: dict[str, Any] = {**self.config, "num_classes": num_classes}
        if num_classes == 0:
            self.out = nn.Identity()
            return
        some = next(self.parameters())
        self.out = nn.Linear(self.num_features, num_classes, device=some.device, dtype=some.dtype)
        nn.init.normal_(self.out.weight, std=0.01)
        nn.init.zeros_(self.out.bias)


class Halving(nn.Module):
    """A layer that halves the image, with batch normalisation and ReLU: (N, C, H, W) to (N, channels, H / 2, W / 2)."""

    def __init__(self, kind: str, in_channels: int, channels: int) -> None:
        super().__init__()
        sizes = in_channels, channels, 3
        self.conv: nn.Module
        if kind == "epitomic":  # Eq. 2
            self.conv = EpitomicConv2d(*sizes, pool_size=POOL, padding=1, bias=False)
        elif kind == "maxpool":  # Eq. 1
            self.conv = MaxPoolConv2d(*sizes, pool_size=POOL, padding=1, bias=False, ceil_mode=True)
        else:
            self.conv = nn.Conv2d(*sizes, stride=1 if kind == "blur" else POOL, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.pool = BlurPool(channels) if kind == "blur" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Halves the image; an odd side is rounded up."""
        return self.pool(F.relu(self.norm(self.conv(x))))


class BlurPool(nn.Module):
    """Takes every second pixel of the image blurred with the binomial filter (1, 2, 1).

    Args:
        channels: Number of channels.
    """

    filter: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        line = torch.tensor([1.0, 2.0, 1.0]) / 4
        weight = (line[:, None] * line).expand(channels, 1, 3, 3).clone()
        self.register_buffer("filter", weight)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, C, H, W) to (N, C, H / 2, W / 2); the image is mirrored at its border."""
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), self.filter, stride=POOL, groups=x.shape[1])


class Residual(nn.Module):
    """Two 3 x 3 convolutions with batch normalisation, added to the input.

    Args:
        channels: Number of channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, C, H, W) to the same shape."""
        return F.relu(x + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))


for _kind in KINDS:
    register(f"{_kind}_resnet", partial(ResNet, _kind), num_classes=100, in_channels=3, image_size=64)
