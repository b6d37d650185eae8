"""The layers: `EpitomicConv2d`, its dual `MaxPoolConv2d`, and what the paper compares them with."""

from epitomic.layers.epitomic import EpitomicConv1d, EpitomicConv2d
from epitomic.layers.max_pool import MaxPoolConv1d, MaxPoolConv2d
from epitomic.layers.plain import MaxoutConv2d, NormConv2d, WinogradConv2d, is_normalized

__all__ = [
    "EpitomicConv1d",
    "EpitomicConv2d",
    "MaxPoolConv1d",
    "MaxPoolConv2d",
    "MaxoutConv2d",
    "NormConv2d",
    "WinogradConv2d",
    "is_normalized",
]
