"""Epitomic convolution for PyTorch (Papandreou, "Deep Epitomic Convolutional Neural Networks", 2014)."""

from typing import TYPE_CHECKING, Any

from epitomic._version import __version__
from epitomic.functional import epitomic_conv2d
from epitomic.layers import EpitomicConv2d, MaxoutConv2d, NormConv2d

__all__ = [
    "EpitomicConv2d",
    "MaxoutConv2d",
    "NormConv2d",
    "__version__",
    "create_model",
    "epitomic_conv2d",
    "from_pretrained",
    "list_models",
]

if TYPE_CHECKING:
    from epitomic.models import create_model, from_pretrained, list_models


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """The networks, imported when they are first asked for."""
    if name in ("create_model", "from_pretrained", "list_models"):
        from epitomic import models

        return getattr(models, name)
    raise AttributeError(f"module 'epitomic' has no attribute {name!r}")
