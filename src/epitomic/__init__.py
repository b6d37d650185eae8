"""Epitomic convolution for PyTorch (Papandreou, "Deep Epitomic Convolutional Neural Networks", 2014)."""

from epitomic._version import __version__
from epitomic.functional import epitomic_conv2d
from epitomic.layers import EpitomicConv2d, MaxoutConv2d, NormConv2d

__all__ = ["EpitomicConv2d", "MaxoutConv2d", "NormConv2d", "__version__", "epitomic_conv2d"]
