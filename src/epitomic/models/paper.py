"""The paper's ImageNet networks, each with normalised filters (Eq. 3) or without.

They are Max-Pool (Table 1), Epitomic (Table 2) and Topographic (Table 3). Where the paper leaves something open, we do
the following:

- *Pooling stride*: it equals the pooling size, and windows may reach over the border (``ceil_mode``), as in Caffe,
  which the paper used. Then both networks reach 5 x 5 x 512 from 220 pixels, and both have a total stride of 36.
- *Padding*: layers 3 to 5 have one pixel, so that their maps keep their size. The others have none.
- *Order*: convolution, ReLU, LRN, maximum ("conv + lrn + max" in Table 1). An epitomic layer has the maximum inside.
  So has layer 6 of Max-Pool, which has no LRN: there the order changes nothing, and `MaxPoolConv2d` is faster.
- *LRN*: it has Krizhevsky's constants, size 5, alpha 1e-4 (times the sum), beta 0.75, k 2.
- *Dropout*: the rate is 0.5.
- *Normalisation* (Eq. 3): it is in layers 1, 2 and 6, with lambda 0.01.
- *Initialisation*: `blocks.initialize` describes it.
- *Topographic channels*: Table 3 has 4 x 25 = 100 and 4 x 49 = 196 channels where the others have 96 and 192.
- *Width*: it multiplies the channels, rounded to multiples of 8, or the number of epitomes of topographic layers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from epitomic.layers import EpitomicConv2d, MaxPoolConv2d, NormConv2d, WinogradConv2d
from epitomic.models.blocks import check_image_size, full_layer, initialize, scale_channels, scale_epitomes
from epitomic.models.lrn import LocalResponseNorm
from epitomic.models.registry import register


@dataclass(frozen=True)
class Layer:
    """One of the six convolutional layers, which are columns of Tables 1 to 3.

    Attributes:
        channels: Number of output channels.
        kernel: Filter size W.
        stride: Step from one patch of the input to the next.
        padding: Rows and columns of zeros on each side of the input.
        pool: Pooling size, or D of an epitomic layer. None means a plain convolution.
        epitome: Epitome size V. None means no epitomes.
        epitome_stride: Step e from one filter of an epitome to the next.
        outputs: Number of output channels per epitome.
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
    Layer(256, kernel=3, padding=1),
    Layer(384, kernel=3, padding=1),
    Layer(512, kernel=3, padding=1),
)
TABLES: dict[str, tuple[Layer, ...]] = {
    "maxpool": (  # Table 1
        Layer(96, kernel=8, stride=2, pool=3, lrn=True),
        Layer(192, kernel=6, stride=1, pool=2, lrn=True),
        *PLAIN,
        Layer(512, kernel=3, stride=1, pool=3),
    ),
    "epitomic": (  # Table 2
        Layer(96, kernel=8, stride=4, pool=3, epitome=12, epitome_stride=2, lrn=True),
        Layer(192, kernel=6, stride=3, pool=3, epitome=8, lrn=True),
        *PLAIN,
        Layer(512, kernel=3, stride=3, pool=3, epitome=5),
    ),
    "topographic": (  # Table 3
        Layer(4 * 25, kernel=8, stride=4, pool=3, epitome=36, epitome_stride=2, outputs=25, lrn=True),
        Layer(4 * 49, kernel=6, stride=3, pool=3, epitome=26, outputs=49, lrn=True),
        *PLAIN,
        Layer(8 * 64, kernel=3, stride=3, pool=3, epitome=26, outputs=64),
    ),
}
FULL = 4096  # outputs of layers 7 and 8
MINIMUM = {"maxpool": 62, "epitomic": 52, "topographic": 52}  # the image size that leaves one pixel after layer 6


class PaperNet(nn.Module):
    """One of the paper's ImageNet networks.

    Args:
        table: ``"maxpool"`` (Table 1), ``"epitomic"`` (Table 2) or ``"topographic"`` (Table 3).
        normalize: Whether to normalise the filters of layers 1, 2 and 6, which take a maximum (Eq. 3).
        num_classes: Number of classes.
        in_channels: Number of image channels.
        image_size: Height and width of the images. It decides the number of inputs of layer 7.
        width: Factor on the channels.
        dropout: Dropout rate on the outputs of layers 7 and 8.
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
        check_image_size(table, image_size, MINIMUM[table])
        channels, size = in_channels, image_size
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, layer in enumerate(TABLES[table], start=1):
            layers[f"layer{number}"] = _make(layer, channels, width, normalize and layer.pool is not None)
            channels, size = _channels(layer, width), _output_size(layer, size)
        self.features = nn.Sequential(layers)
        full = scale_channels(FULL, width)
        self.layer7 = full_layer(channels * size**2, full, dropout)
        self.layer8 = full_layer(full, full, dropout)
        self.out = nn.Linear(full, num_classes)
        initialize(self)

    def forward_features(self, x: Tensor) -> Tensor:
        """Returns the output of the last hidden layer, (N, 4096), which the paper uses as features for other tasks."""
        x = self.features(x)  # (N, 512, 5, 5) from 220 pixels
        return self.layer8(self.layer7(x.flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the class scores before the softmax, (N, num_classes)."""
        return self.out(self.forward_features(x))


def _channels(layer: Layer, width: float) -> int:
    if layer.outputs > 1:
        return scale_epitomes(layer.channels // layer.outputs, width) * layer.outputs
    return scale_channels(layer.channels, width)


def _make(layer: Layer, in_channels: int, width: float, normalize: bool) -> nn.Sequential:
    """Makes a convolutional layer: convolution, ReLU, LRN, maximum. Without LRN, the first layer takes the maximum."""
    sizes = in_channels, _channels(layer, width), layer.kernel
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    fused = layer.epitome is None and layer.pool is not None and not layer.lrn
    if layer.pool is None:
        parts["conv"] = WinogradConv2d(*sizes, padding=layer.padding)
    elif fused:  # ReLU never decreases, so the maximum may come before it
        parts["conv"] = MaxPoolConv2d(*sizes, pool_size=layer.pool, ceil_mode=True, normalize=normalize)  # Eq. 1
    elif layer.epitome is None:
        parts["conv"] = (NormConv2d if normalize else nn.Conv2d)(*sizes, stride=layer.stride)
    else:
        parts["conv"] = EpitomicConv2d(  # Eq. 2, or Eq. 3 with normalize
            *sizes,
            pool_size=layer.pool,
            stride=layer.stride,
            epitome_size=layer.epitome,
            epitome_stride=layer.epitome_stride,
            normalize=normalize,
        )
    parts["relu"] = nn.ReLU()
    if layer.lrn:
        parts["lrn"] = LocalResponseNorm()
    if layer.epitome is None and layer.pool is not None and not fused:
        parts["pool"] = nn.MaxPool2d(layer.pool, ceil_mode=True)  # with the convolution, Eq. 1
    return nn.Sequential(parts)


def _output_size(layer: Layer, size: int) -> int:
    """Returns the height and width of a layer's output, for an input of this size."""
    size = (size + 2 * layer.padding - layer.kernel) // layer.stride + 1
    return -(-size // layer.pool) if layer.epitome is None and layer.pool else size


for _table in TABLES:
    for _suffix, _normalize in (("", False), ("_norm", True)):
        build = partial(PaperNet, _table, normalize=_normalize)
        register(_table + _suffix, build, num_classes=1000, in_channels=3, image_size=220)
