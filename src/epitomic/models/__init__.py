"""The networks of the paper and others to compare with: `list_models`, `create_model`, `from_pretrained`."""

from epitomic.models import alexnet, fast, paper, resnet, small
from epitomic.models.blocks import FitsImages
from epitomic.models.counting import Count, LayerCount, count
from epitomic.models.creation import create_model
from epitomic.models.preprocessing import Preprocessing, PretrainedConfig
from epitomic.models.pretrained import from_pretrained, list_pretrained, save_pretrained
from epitomic.models.registry import list_models

__all__ = [
    "Count",
    "FitsImages",
    "LayerCount",
    "Preprocessing",
    "PretrainedConfig",
    "alexnet",
    "count",
    "create_model",
    "fast",
    "from_pretrained",
    "list_models",
    "list_pretrained",
    "paper",
    "resnet",
    "save_pretrained",
    "small",
]
