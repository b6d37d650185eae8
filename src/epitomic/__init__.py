"""Epitomic convolution for PyTorch: one layer in place of convolution and max-pooling.

The paper: Papandreou, "Deep Epitomic Convolutional Neural Networks", 2014, https://arxiv.org/abs/1406.2732.
"""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from epitomic._version import __version__
from epitomic.functional import epitomic_conv2d, max_pool_conv2d, winograd_conv2d
from epitomic.functional_1d import epitomic_conv1d, max_pool_conv1d
from epitomic.layers import (
    EpitomicConv1d,
    EpitomicConv2d,
    MaxoutConv2d,
    MaxPoolConv1d,
    MaxPoolConv2d,
    NormConv2d,
    WinogradConv2d,
)
from epitomic.ops import flops as _flops  # noqa: F401 (for FlopCounterMode)
from epitomic.ops.selection import SELECTION as _SELECTION

__all__ = [
    "EpitomicConv1d",
    "EpitomicConv2d",
    "MaxPoolConv1d",
    "MaxPoolConv2d",
    "MaxoutConv2d",
    "NormConv2d",
    "WinogradConv2d",
    "__version__",
    "benchmark",
    "convert_",
    "create_model",
    "epitomic_conv1d",
    "epitomic_conv2d",
    "fold_batch_norm",
    "for_export",
    "from_pretrained",
    "fuse_",
    "list_models",
    "max_pool_conv1d",
    "max_pool_conv2d",
    "push_to_hub",
    "unfuse_",
    "winograd_conv2d",
]

LAZY = {
    **dict.fromkeys(("create_model", "from_pretrained", "list_models"), "models"),
    **dict.fromkeys(("convert_", "fold_batch_norm", "for_export", "fuse_", "unfuse_"), "surgery"),
    "push_to_hub": "sharing",
}

if TYPE_CHECKING:
    benchmark: bool
    from epitomic.models import create_model, from_pretrained, list_models
    from epitomic.sharing import push_to_hub
    from epitomic.surgery import convert_, fold_batch_norm, for_export, fuse_, unfuse_


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Imports networks, sharing and surgery when they are first asked for."""
    if name in LAZY:
        return getattr(importlib.import_module(f"epitomic.{LAZY[name]}"), name)
    raise AttributeError(f"module 'epitomic' has no attribute {name!r}")


class _Package(types.ModuleType):
    """This package, with an attribute that checks what it is set to."""

    @property
    def benchmark(self) -> bool:
        """Whether ``"auto"`` times the algorithms at the first call of a shape and takes the fastest.

        The results are kept in a file (docs/how-to/gpu.md). It is False at first.
        """
        return _SELECTION.benchmark

    @benchmark.setter
    def benchmark(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"epitomic.benchmark must be True or False, got {value!r}")
        _SELECTION.benchmark = value


sys.modules[__name__].__class__ = _Package
