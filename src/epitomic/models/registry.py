"""The registry of models: their names, default sizes and options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from epitomic.support.errors import UserError, unknown


@dataclass(frozen=True)
class Entry:
    """One model of the registry.

    Attributes:
        build: Makes the network from keyword arguments.
        num_classes: Default number of classes.
        in_channels: Default number of image channels.
        image_size: Default height and width of the images.
    """

    build: Callable[..., nn.Module]
    num_classes: int
    in_channels: int
    image_size: int


MODELS: dict[str, Entry] = {}


def register(
    name: str, build: Callable[..., nn.Module], *, num_classes: int, in_channels: int, image_size: int
) -> None:
    """Adds a model. ``build`` takes keyword arguments only."""
    MODELS[name] = Entry(build, num_classes, in_channels, image_size)


def list_models() -> list[str]:
    """Returns the names that `create_model` knows."""
    return sorted(MODELS)


def model_options(name: str) -> Mapping[str, inspect.Parameter]:
    """Returns the options of a model, without those that its name already fixes (`functools.partial`)."""
    if name not in MODELS:
        raise unknown("model", str(name), MODELS)
    build = MODELS[name].build
    fixed = getattr(build, "keywords", {})
    return {option: p for option, p in inspect.signature(build).parameters.items() if option not in fixed}


def build_model(name: str, options: Mapping[str, Any]) -> nn.Module:
    """Makes a network with initial weights, and notes its resolved options as ``model.config``.

    Args:
        name: One of `list_models`.
        options: Options of the model. Those that are missing have the model's defaults.

    Raises:
        UserError: If the model or an option is unknown, or a value does not fit.
    """
    known = model_options(name)
    entry = MODELS[name]
    sizes = {"num_classes": entry.num_classes, "in_channels": entry.in_channels, "image_size": entry.image_size}
    arguments: dict[str, Any] = {**sizes, "width": 1.0, **options}
    for option in arguments:
        if option not in known:
            raise unknown(f"option of model {name!r}", option, known)
    for option in sizes:
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
    return model
