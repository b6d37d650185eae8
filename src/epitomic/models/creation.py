"""`create_model`: a network by name, with initial or trained weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from epitomic.models.pretrained import find_pretrained, list_pretrained, load_weights, read_config
from epitomic.models.registry import build_model, model_options
from epitomic.support.errors import UserError


def create_model(
    name: str,
    *,
    num_classes: int | None = None,
    in_channels: int | None = None,
    image_size: int | None = None,
    width: float | None = None,
    dropout: float | None = None,
    pretrained: str | Path | bool | None = None,
    **options: Any,
) -> nn.Module:
    """Makes a network by name.

    An option that is None has the model's default. With ``pretrained``, it has the value that the weights were trained
    with.

    Args:
        name: One of `list_models`.
        num_classes: Number of classes.
        in_channels: Number of image channels.
        image_size: Height and width of the images.
        width: Factor on the channels of every layer (default: 1).
        dropout: Dropout rate after the fully-connected layers.
        pretrained: A folder that `save_pretrained` wrote, the name of a data set for which weights of this network ship
            with the package (`list_pretrained`), or a network on the Hugging Face hub, such as ``"user/name"``. None or
            False means initial weights. If the weights are for another number of classes, the softmax layer keeps its
            initial weights.
        **options: Further options of this model, such as ``batch_norm`` of the small ones.

    Returns:
        The network. Its attribute ``config`` holds the resolved options.

    Example:
        >>> import torch
        >>> model = create_model("epitomic_small", image_size=8)
        >>> model(torch.randn(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    given = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size, "width": width}
    given["dropout"] = dropout
    options = {**{option: value for option, value in given.items() if value is not None}, **options}
    if pretrained is None or pretrained is False:
        return build_model(name, options)
    model_options(name)  # an unknown name is the first error to report
    folder = _pretrained_folder(name, pretrained)
    stored, trained_with = read_config(folder)
    if stored != name:
        raise UserError(f"{folder} has weights of {stored!r}, not of {name!r}")
    model = build_model(name, {**trained_with, **options})
    load_weights(model, folder, new_classes=num_classes is not None)
    return model


def _pretrained_folder(name: str, pretrained: str | Path | bool) -> Path:
    if isinstance(pretrained, bool):  # weights for several data sets may ship
        sets = [repr(shipped.rpartition("-")[2]) for shipped in list_pretrained() if shipped.rpartition("-")[0] == name]
        choices = f"one of {', '.join(sets)}, which ship with the package" if sets else "none ships with the package"
        raise UserError(f"pretrained must name the weights of model {name!r}: a folder, or {choices}; got {pretrained}")
    shipped = f"{name}-{pretrained}"
    return find_pretrained(shipped if shipped in list_pretrained() else pretrained, hub=True)
