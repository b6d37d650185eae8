"""The paper's ImageNet networks: Max-Pool, Epitomic and Topographic (Tables 1 to 3), each with Eq. 3 or without.

What the paper leaves open, and what is here:

- *Pooling stride* equals the pooling size, and windows may hang over the border (``ceil_mode``), as in Caffe, which the
  paper used. Then both networks reach 5 x 5 x 512 from 220 pixels, and both have a total stride of 36.
- *Padding*: layers 3 to 5 have one pixel, so that their maps keep their size; the others none.
- *Order*: convolution, ReLU, LRN, maximum ("conv + lrn + max" in Table 1). In an epitomic layer the maximum is inside.
- *LRN* has Krizhevsky's constants: size 5, alpha 1e-4 (times the sum), beta 0.75, k 2.
- *Dropout* 0.5.
- *Normalisation* (Eq. 3) in layers 1, 2 and 6, lambda 0.01.
- *Initialisation*: see `blocks.initialize`.
- The *topographic* table has 4 x 25 and 4 x 49 outputs, 100 and 196 channels, where the others have 96 and 192.
- ``width`` multiplies the channels, rounded to multiples of 8, and in topographic layers the number of epitomes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from epitomic.errors import UserError
from epitomic.layers import EpitomicConv2d
from epitomic.models.blocks import convolution, full_layer, initialize, scale_channels, scale_epitomes
from epitomic.models.lrn import LocalResponseNorm
from epitomic.models.registry import register


@dataclass(frozen=True)
class Row:
    """A column of Tables 1 to 3, for one of the six convolutional layers.

    Attributes:
        channels: Output channels.
        kernel: Filter size W.
        stride: Input stride.
        padding: On each side of the input.
        pool: Pooling size of Max-Pool, epitome pooling size D of the others. None: a plain convolution.
        epitome: Epitome size V. None: no epitomes.
        epitome_stride: e.
        outputs: Outputs per epitome.
        lrn: Whether LRN follows.
    """

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    pool: int | None = None
    epitome: int | None = None
    epitome_stride: int = 1
    outputs: int = 1
    lrn: bool = False


PLAIN = (  # layers 3 to 5, the same in all three tables
    Row(256, kernel=3, padding=1),
    Row(384, kernel=3, padding=1),
    Row(512, kernel=3, padding=1),
)
TABLES: dict[str, tuple[Row, ...]] = {
    "maxpool": (  # Table 1
        Row(96, kernel=8, stride=2, pool=3, lrn=True),
        Row(192, kernel=6, stride=1, pool=2, lrn=True),
        *PLAIN,
        Row(512, kernel=3, stride=1, pool=3),
    ),
    "epitomic": (  # Table 2
        Row(96, kernel=8, stride=4, pool=3, epitome=12, epitome_stride=2, lrn=True),
        Row(192, kernel=6, stride=3, pool=3, epitome=8, lrn=True),
        *PLAIN,
        Row(512, kernel=3, stride=3, pool=3, epitome=5),
    ),
    "topographic": (  # Table 3
        Row(4 * 25, kernel=8, stride=4, pool=3, epitome=36, epitome_stride=2, outputs=25, lrn=True),
        Row(4 * 49, kernel=6, stride=3, pool=3, epitome=26, outputs=49, lrn=True),
        *PLAIN,
        Row(8 * 64, kernel=3, stride=3, pool=3, epitome=26, outputs=64),
    ),
}
FULL = 4096  # outputs of layers 7 and 8


class PaperNet(nn.Module):
    """One of the paper's ImageNet networks.

    Args:
        table: ``"maxpool"``, ``"epitomic"`` or ``"topographic"``.
        normalize: Eq. 3 in layers 1, 2 and 6, those with a maximum.
        num_classes: Outputs of the softmax layer.
        in_channels: Channels of the images.
        image_size: Height and width of the images; it decides the inputs of layer 7.
        width: Multiplies the channels.
        dropout: Rate on the outputs of layers 7 and 8.
    """

    def __init__(
        self,
        table: str,
        *,
        normalize: bool,
        num_classes: int,
        in_channels: int,
        image_size: int,
        width: float,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        sizes = _map_sizes(table, image_size)
        channels = in_channels
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, row in enumerate(TABLES[table], start=1):
            layers[f"layer{number}"] = _layer(row, channels, width, normalize and row.pool is not None)
            channels = _channels(row, width)
        self.features = nn.Sequential(layers)
        full = scale_channels(FULL, width)
        self.layer7 = full_layer(channels * sizes[-1] ** 2, full, dropout)
        self.layer8 = full_layer(full, full, dropout)
        self.out = nn.Linear(full, num_classes)
        initialize(self)

    def forward_features(self, x: Tensor) -> Tensor:
        """The output of the last hidden layer, (N, 4096): the paper's features for other tasks."""
        x = self.features(x)  # (N, 512, 5, 5) from 220 pixels
        return self.layer8(self.layer7(x.flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores before the softmax, (N, num_classes)."""
        return self.out(self.forward_features(x))


def _channels(row: Row, width: float) -> int:
    if row.outputs > 1:
        return scale_epitomes(row.channels // row.outputs, width) * row.outputs
    return scale_channels(row.channels, width)


def _layer(row: Row, in_channels: int, width: float, normalize: bool) -> nn.Sequential:
    """One convolutional layer: convolution, ReLU, LRN, maximum."""
    channels = _channels(row, width)
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    if row.epitome is None:
        parts["conv"] = convolution(
            in_channels, channels, row.kernel, stride=row.stride, padding=row.padding, normalize=normalize
        )
    else:
        assert row.pool is not None
        parts["conv"] = EpitomicConv2d(
            in_channels,
            channels,
            row.kernel,
            pool_size=row.pool,
            stride=row.stride,
            epitome_size=row.epitome,
            epitome_stride=row.epitome_stride,
            normalize=normalize,
        )
    parts["relu"] = nn.ReLU()
    if row.lrn:
        parts["lrn"] = LocalResponseNorm()
    if row.epitome is None and row.pool is not None:
        parts["pool"] = nn.MaxPool2d(row.pool, ceil_mode=True)
    return nn.Sequential(parts)


def _map_sizes(table: str, image_size: int) -> list[int]:
    """Height and width of the six layers' outputs; an error if the image is too small for them."""
    sizes = [image_size]
    for row in TABLES[table]:
        size = (sizes[-1] + 2 * row.padding - row.kernel) // row.stride + 1
        if size < 1:
            raise UserError(f"image_size of {table} networks must be at least {_least(table)}, got {image_size}")
        sizes.append(-(-size // row.pool) if row.epitome is None and row.pool else size)
    return sizes[1:]


def _least(table: str) -> int:
    """The smallest image: one pixel of output, then each layer backwards."""
    size = 1
    for row in reversed(TABLES[table]):
        if row.epitome is None and row.pool:
            size = (size - 1) * row.pool + 1
        size = (size - 1) * row.stride + row.kernel - 2 * row.padding
    return size


for _table in TABLES:
    for _normalize in (False, True):
        register(
            _table + ("_norm" if _normalize else ""),
            partial(PaperNet, _table, normalize=_normalize),
            num_classes=1000,
            in_channels=3,
            image_size=220,
        )
