"""Modern networks for small images, made for the most accuracy per minute of training on two cores.

They follow the fast CIFAR-10 networks of Page and of Jordan's airbench: a fixed whitening layer, three blocks of two
layers with batch normalisation, and a maximum over all positions. The first layer of a block halves the image. In
``epitomic_fast`` it is one epitomic layer with W = 3 and D = 2; in its twin ``maxpool_fast`` it is convolution +
max-pooling (Eq. 1 of the paper).

    3 x 32 x 32  ->  24 x 31 x 31  ->  64 x 15 x 15  ->  256 x 7 x 7  ->  256 x 3 x 3  ->  256  ->  10
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.layers import EpitomicConv2d, MaxPoolConv2d, WinogradConv2d
from epitomic.models.blocks import check_image_size, initialize, scale_channels
from epitomic.models.registry import register
from epitomic.models.whitening import PATCH, Whitening

CHANNELS = (64, 256, 256)  # output channels of the three blocks
SCALE = 1 / 9  # factor on the class scores: it lets the softmax layer learn at the pace of the others


class FastNet(nn.Module):
    """Whitening, three blocks, a maximum over all positions, and the softmax layer.

    Args:
        kind: ``"epitomic"`` or ``"maxpool"``.
        num_classes: Number of classes.
        in_channels: Number of image channels.
        image_size: Height and width of the images, at least 16.
        width: Factor on the channels.
        depth: Layers per block, the first one included. From 3 on, a shortcut skips all but the first.
    """

    def __init__(
        self, kind: str, *, num_classes: int, in_channels: int, image_size: int, width: float, depth: int = 2
    ) -> None:
        super().__init__()
        check_image_size("fast", image_size, minimum=16)
        self.whitening = Whitening(in_channels)
        layers: OrderedDict[str, Block] = OrderedDict()
        channels, size = self.whitening.out_channels, image_size - PATCH + 1
        for number, outputs in enumerate((scale_channels(c, width) for c in CHANNELS), start=1):
            layers[f"block{number}"] = Block(kind, channels, outputs, size, depth)
            channels, size = outputs, size // 2
        self.features = nn.Sequential(OrderedDict(layers))
        self.out = nn.Linear(channels, num_classes, bias=False)
        initialize(self)
        nn.init.normal_(self.out.weight, std=channels**-0.5)
        for block in layers.values():
            block.start_as_identity()

    def fit(self, images: Tensor) -> None:
        """Takes the whitening, which is not learned, from some images."""
        self.whitening.fit(images)

    def forward_features(self, x: Tensor) -> Tensor:
        """Returns the largest response of each channel of the last block, (N, channels)."""
        return self.features(F.gelu(self.whitening(x))).amax((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the class scores before the softmax, (N, num_classes)."""
        return self.out(self.forward_features(x)) * SCALE


class Block(nn.Module):
    """A layer that halves the image, then convolutions that keep its size, each with batch normalisation and GELU."""

    def __init__(self, kind: str, in_channels: int, channels: int, size: int, depth: int) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict()  # both kinds have floor(size / 2) outputs per axis
        if kind == "maxpool":  # Eq. 1
            layers["conv"] = MaxPoolConv2d(in_channels, channels, 3, pool_size=2, padding=1, bias=False)
        else:  # Eq. 2
            layers["conv"] = EpitomicConv2d(in_channels, channels, 3, pool_size=2, padding=1 - size % 2, bias=False)
        self.pooled = nn.Sequential(layers)
        self.norm = _norm(channels)
        self.rest = nn.ModuleList(
            nn.Sequential(
                OrderedDict(conv=WinogradConv2d(channels, channels, 3, padding=1, bias=False), norm=_norm(channels))
            )
            for _ in range(depth - 1)
        )

    def start_as_identity(self) -> None:
        """Makes each plain convolution the identity, so that the block starts as its first layer."""
        for layer in self.rest:
            assert isinstance(layer.conv, nn.Conv2d)
            nn.init.dirac_(layer.conv.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (N, C, H, W) to (N, channels, H / 2, W / 2)."""
        x = F.gelu(self.norm(self.pooled(x)))
        shortcut = x
        for number, layer in enumerate(self.rest):
            x = layer(x)
            if number > 0 and number + 1 == len(self.rest):
                x = x + shortcut
            x = F.gelu(x)
        return x


def _norm(channels: int) -> nn.BatchNorm2d:
    """Makes a batch normalisation that learns a bias but no scale, as in airbench.

    The layer after it has a scale already. A scale here would learn at the rate of the biases, which is many times that
    of the weights.
    """
    norm = nn.BatchNorm2d(channels)
    norm.weight.requires_grad_(False)
    return norm


for _name, _kind in (("epitomic_fast", "epitomic"), ("maxpool_fast", "maxpool")):
    register(_name, partial(FastNet, _kind), num_classes=10, in_channels=3, image_size=32)
