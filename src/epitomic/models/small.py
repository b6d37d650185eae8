"""The paper's small networks, for MNIST, CIFAR-10 and the like, and others of the same shape to compare with.

The networks of Table 6 have "three epitomic convolutional layers, followed by one fully-connected layer and the final
softmax", with dropout in the epitomic layers too. The paper gives no sizes. These halve the image in each layer (D = 2)
and fit images of 8 to 64 pixels:

    28 x 28  ->  14 x 14 x 48  ->  7 x 7 x 96  ->  4 x 4 x 128  ->  512  ->  10
                 5 x 5 filters     4 x 4           3 x 3

All networks have the same filter sizes, channels and output sizes. Each output is the maximum of 4 inner products:

- ``epitomic``: the 2 x 2 overlapping filters of a mini-epitome (Eq. 2);
- ``maxpool_init``: the same, but each layer starts as convolution + max-pooling (``init="maxpool"`` of the layer);
- ``topographic``: the same, in epitomes with 4 x 4 outputs each (3, 6 and 8 epitomes);
- ``maxpool``: one filter at 2 x 2 neighbouring positions (Eq. 1), which is convolution + max-pooling;
- ``maxout``: 4 filters that share nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from torch import Tensor, nn

from epitomic.layers import EpitomicConv2d, MaxoutConv2d, MaxPoolConv2d
from epitomic.models.blocks import check_image_size, full_layer, initialize, scale_channels, scale_epitomes
from epitomic.models.dropout import Dropout
from epitomic.models.registry import register
from epitomic.models.whitening import LocalWhitening

POOL = 2  # D
LAYERS = ((48, 5, 2), (96, 4, 1), (128, 3, 1))  # channels, filter size W and padding of each layer
PER_AXIS = 4  # outputs per axis of a topographic epitome


class SmallNet(nn.Module):
    """Three layers that take maxima, one fully-connected layer, and the softmax layer.

    Args:
        kind: ``"epitomic"``, ``"maxpool_init"``, ``"topographic"``, ``"maxpool"`` or ``"maxout"``.
        normalize: Whether to normalise the filters of the three layers (Eq. 3).
        num_classes: Number of classes.
        in_channels: Number of image channels.
        image_size: Height and width of the images, from 8 to 64.
        width: Factor on the channels.
        dropout: Dropout rate on the output of the fully-connected layer.
        conv_dropout: Dropout rate on the outputs of the three layers.
        hidden: Outputs of the fully-connected layer, before ``width`` is applied.
        batch_norm: Whether to put batch normalisation in front of each ReLU. The paper has none.
        whiten: Whether to whiten the images first. `fit` takes the whitening from some images.
    """

    def __init__(
        self,
        kind: str,
        *,
        normalize: bool,
        num_classes: int,
        in_channels: int,
        image_size: int,
        width: float,
        dropout: float = 0.5,
        conv_dropout: float = 0.1,
        hidden: int = 512,
        batch_norm: bool = False,
        whiten: bool = False,
    ) -> None:
        super().__init__()
        check_image_size("small", image_size, minimum=8, maximum=64)
        self.whitening = LocalWhitening(in_channels) if whiten else None
        channels, size = in_channels, image_size
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (outputs, kernel, padding) in enumerate(LAYERS, start=1):
            outputs = _channels(kind, outputs, width)
            parts = _layer(kind, channels, outputs, kernel, padding, normalize)
            if batch_norm:
                parts["norm"] = nn.BatchNorm2d(outputs)
            parts["relu"] = nn.ReLU()
            parts["dropout"] = Dropout(conv_dropout)
            layers[f"layer{number}"] = nn.Sequential(parts)
            channels, size = outputs, (size + 2 * padding - kernel) // POOL + 1
        self.features = nn.Sequential(layers)
        hidden = scale_channels(hidden, width)
        self.layer4 = full_layer(channels * size * size, hidden, dropout, batch_norm=batch_norm)
        self.out = nn.Linear(hidden, num_classes)
        initialize(self)
        if self.whitening is not None:
            self.whitening.reset_parameters()

    def fit(self, images: Tensor) -> None:
        """Takes the whitening, if there is one, from some images."""
        if self.whitening is not None:
            self.whitening.fit(images)

    def forward_features(self, x: Tensor) -> Tensor:
        """Returns the output of the fully-connected layer, (N, hidden)."""
        if self.whitening is not None:
            x = self.whitening(x)
        return self.layer4(self.features(x).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the class scores before the softmax, (N, num_classes)."""
        return self.out(self.forward_features(x))


def _channels(kind: str, channels: int, width: float) -> int:
    if kind == "topographic":
        return scale_epitomes(channels // PER_AXIS**2, width) * PER_AXIS**2
    return scale_channels(channels, width)


def _layer(
    kind: str, in_channels: int, channels: int, kernel: int, padding: int, normalize: bool
) -> OrderedDict[str, nn.Module]:
    """Makes a layer up to its maximum. All kinds have ceil((n + 2 padding - kernel + 1) / 2) outputs for n pixels."""
    sizes = in_channels, channels, kernel
    if kind == "maxpool":  # Eq. 1
        layer = MaxPoolConv2d(*sizes, pool_size=POOL, padding=padding, ceil_mode=True, normalize=normalize)
        return OrderedDict(conv=layer)
    if kind == "maxout":
        return OrderedDict(conv=MaxoutConv2d(*sizes, pieces=POOL * POOL, stride=POOL, padding=padding))
    epitome = kernel + POOL * (PER_AXIS if kind == "topographic" else 1) - 1
    epitomes = EpitomicConv2d(
        *sizes,
        pool_size=POOL,
        padding=padding,
        epitome_size=epitome,
        normalize=normalize,
        init="maxpool" if kind == "maxpool_init" else "uniform",
    )
    return OrderedDict(conv=epitomes)  # Eq. 2, or Eq. 3 with normalize


for _name, _kind, _normalize in (
    ("epitomic_small", "epitomic", False),
    ("epitomic_small_norm", "epitomic", True),
    ("epitomic_small_maxpool_init", "maxpool_init", False),
    ("topographic_small_norm", "topographic", True),
    ("maxpool_small", "maxpool", False),
    ("maxout_small", "maxout", False),
):
    build = partial(SmallNet, _kind, normalize=_normalize)
    register(_name, build, num_classes=10, in_channels=1, image_size=28)
