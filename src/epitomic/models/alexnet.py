"""The network of Krizhevsky, Sutskever and Hinton (2012), which the paper's convergence figure compares with.

Both halves are on one device, as in Caffe's reference model: convolutions 2, 4 and 5 see their own half of the channels
(``groups=2``). ReLU follows each convolution. Layers 1 and 2 also have LRN, and layers 1, 2 and 5 have 3 x 3
max-pooling with stride 2, whose windows overlap and stay inside the image. Biases start at zero; the authors set some
to one.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from epitomic.layers import MaxPoolConv2d, WinogradConv2d
from epitomic.models.blocks import check_image_size, full_layer, initialize, scale_channels
from epitomic.models.lrn import LocalResponseNorm
from epitomic.models.registry import register


class AlexNet(nn.Module):
    """Five convolutional and two fully-connected layers, and the softmax layer.

    Args:
        num_classes: Number of classes.
        in_channels: Number of image channels.
        image_size: Height and width of the images, at least 67.
        width: Factor on the channels.
        dropout: Dropout rate on the outputs of layers 6 and 7.
    """

    def __init__(
        self, *, num_classes: int, in_channels: int, image_size: int, width: float, dropout: float = 0.5
    ) -> None:
        super().__init__()
        check_image_size("alexnet", image_size, minimum=67)
        c1, c2, c3, c4, c5, full = (scale_channels(c, width) for c in (96, 256, 384, 384, 256, 4096))
        self.features = nn.Sequential(
            OrderedDict(
                layer1=_layer(nn.Conv2d(in_channels, c1, 11, stride=4), lrn=True, pool=True),
                layer2=_layer(nn.Conv2d(c1, c2, 5, padding=2, groups=2), lrn=True, pool=True),
                layer3=_layer(WinogradConv2d(c2, c3, 3, padding=1)),
                layer4=_layer(WinogradConv2d(c3, c4, 3, padding=1, groups=2)),
                layer5=_layer(MaxPoolConv2d(c4, c5, 3, pool_size=3, pool_stride=2, padding=1, groups=2)),
            )
        )
        size = (image_size - 11) // 4 + 1
        for _ in range(3):
            size = (size - 3) // 2 + 1
        self.layer6 = full_layer(c5 * size * size, full, dropout)
        self.layer7 = full_layer(full, full, dropout)
        self.out = nn.Linear(full, num_classes)
        initialize(self)

    def forward_features(self, x: Tensor) -> Tensor:
        """Returns the output of the last hidden layer, (N, 4096)."""
        return self.layer7(self.layer6(self.features(x).flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the class scores before the softmax, (N, num_classes)."""
        return self.out(self.forward_features(x))


def _layer(conv: nn.Module, *, lrn: bool = False, pool: bool = False) -> nn.Sequential:
    parts: OrderedDict[str, nn.Module] = OrderedDict(conv=conv, relu=nn.ReLU())
    if lrn:
        parts["lrn"] = LocalResponseNorm()
    if pool:
        parts["pool"] = nn.MaxPool2d(3, stride=2)
    return nn.Sequential(parts)


register("alexnet", AlexNet, num_classes=1000, in_channels=3, image_size=227)
