"""The model registry: `create_model` by name, as in timm."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from epitomic.errors import UserError, unknown


@dataclass(frozen=True)
class Entry:
    """What the registry knows of a model.

    Attributes:
        build: Makes the network from keyword arguments.
        num_classes: The default number of classes,
        in_channels: of image channels,
        image_size: and image height and width.
    """

    build: Callable[..., nn.Module]
    num_classes: int
    in_channels: int
    image_size: int


MODELS: dict[str, Entry] = {}


def register(
    name: str, build: Callable[..., nn.Module], *, num_classes: int, in_channels: int, image_size: int
) -> None:
    """Adds a model under ``name``; its builder takes keyword arguments only."""
    MODELS[name] = Entry(build, num_classes, in_channels, image_size)


def list_models() -> list[str]:
    """The names that `create_model` knows."""
    return sorted(MODELS)


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
    """Makes a network.

    Args:
        name: One of `list_models`.
        num_classes: Outputs of the softmax layer. None: the model's own default, here and below.
        in_channels: Channels of the images.
        image_size: Height and width of the images.
        width: Multiplies the channels of every layer; 1 by default.
        dropout: Rate after the fully-connected layers.
        pretrained: A folder that `save_pretrained` wrote, or the name of a set for which weights of this network ship
            with the package (`list_pretrained`); False is None. What is not given here is then as it was there; a
            softmax layer for another number of classes is left as initialised.
        **options: Further options of this model, such as ``batch_norm`` of the small ones.

    Returns:
        The network, with the resolved arguments as ``model.config``.

    Example:
        >>> import torch
        >>> model = create_model("epitomic_small", image_size=8)
        >>> model(torch.randn(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    known = model_options(name)
    entry = MODELS[name]
    arguments: dict[str, Any] = {
        "num_classes": entry.num_classes,
        "in_channels": entry.in_channels,
        "image_size": entry.image_size,
        "width": 1.0,
    }
    folder = None if pretrained is None or pretrained is False else _pretrained_folder(name, pretrained)
    if folder is not None:
        arguments.update(_pretrained_arguments(name, folder))
    given = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size, "width": width}
    given["dropout"] = dropout
    arguments.update({option: value for option, value in given.items() if value is not None}, **options)
    for option in arguments:
        if option not in known:
            raise unknown(f"option of model {name!r}", option, known)
    for option in ("num_classes", "in_channels", "image_size"):
        if not isinstance(arguments[option], int) or arguments[option] < 1:
            raise UserError(f"{option} of model {name!r} must be a positive whole number, got {arguments[option]!r}")
    if not isinstance(arguments["width"], int | float) or not 0 < arguments["width"] <= 16:
        raise UserError(f"width of model {name!r} must be above 0 and at most 16, got {arguments['width']!r}")
    defaults = {key: p.default for key, p in known.items() if p.default is not p.empty}
    for option, value in {**defaults, **arguments}.items():
        if option.endswith("dropout") and not (isinstance(value, int | float) and 0 <= value < 1):
            raise UserError(f"{option} of model {name!r} must be at least 0 and below 1, got {value!r}")
    model = entry.build(**arguments)
    model.config = {"model": name, **defaults, **arguments}  # type: ignore[assignment]
    if folder is not None:
        from epitomic.models.pretrained import load_weights

        load_weights(model, folder)
    return model


def model_options(name: str) -> Mapping[str, inspect.Parameter]:
    """The options that a model takes, besides its name and what the name already says (`functools.partial`)."""
    if name not in MODELS:
        raise unknown("model", str(name), MODELS)
    build = MODELS[name].build
    said = getattr(build, "keywords", {})
    return {option: p for option, p in inspect.signature(build).parameters.items() if option not in said}


def _pretrained_folder(name: str, pretrained: str | Path | bool) -> Path:
    from epitomic.models.pretrained import find_pretrained, list_pretrained

    if isinstance(pretrained, bool):  # several may ship
        sets = [repr(shipped.rpartition("-")[2]) for shipped in list_pretrained() if shipped.rpartition("-")[0] == name]
        there = f"one of {', '.join(sets)}, which ship with the package" if sets else "none ships with the package"
        raise UserError(f"pretrained of model {name!r} is to say which: a folder with weights, or {there}")
    shipped = f"{name}-{pretrained}"
    return find_pretrained(shipped if shipped in list_pretrained() else pretrained)


def _pretrained_arguments(name: str, folder: Path) -> dict[str, Any]:
    from epitomic.models.pretrained import read_config

    stored, arguments = read_config(folder)
    if stored != name:
        raise UserError(f"{folder} has weights of {stored!r}, not of {name!r}")
    return arguments
