"""Lists the networks, or the layers of one network.

epitomic models
epitomic models epitomic
"""

from __future__ import annotations

import argparse

import torch

from epitomic.models import count, create_model, list_models
from epitomic.models.counting import Count
from epitomic.support.console import text_table
from epitomic.support.errors import UserError, unknown


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="show the layers of this network")
    parser.add_argument("--width", type=float, default=1.0, metavar="X", help="factor on the channels of every layer")
    parser.add_argument(
        "--image-size", type=int, metavar="PIXELS", help="height and width of the images (default: the network's own)"
    )


def run(args: argparse.Namespace) -> int:
    """Prints one line for each network, or for each layer of one."""
    if args.model is None:
        head = ("model", "layers", "parameters", "multiply-adds", "input")
        print(text_table(head, [_summary(name, args) for name in list_models()], right=(1, 2, 3)))
        return 0
    if args.model not in list_models():
        raise unknown("model", args.model, list_models())
    total, shape = _count(args.model, args)
    rows = [
        (layer.name, layer.type, _sizes(layer.output), f"{layer.parameters:,}", f"{layer.multiply_adds:,}")
        for layer in total.layers
    ]
    rows.append(("all", "", "", f"{total.parameters:,}", f"{total.multiply_adds:,}"))
    print(f"{args.model}, input {shape}")
    print(text_table(("layer", "type", "output", "parameters", "multiply-adds"), rows, right=(2, 3, 4)))
    return 0


def _summary(name: str, args: argparse.Namespace) -> tuple[str, ...]:
    """Returns the cells of one network, or the reason why it cannot have this image size."""
    try:
        total, shape = _count(name, args)
    except UserError as error:
        if args.image_size is None:
            raise
        return name, "", "", "", str(error)
    learned = sum(layer.multiply_adds > 0 for layer in total.layers)
    return name, str(learned), f"{total.parameters:,}", f"{total.multiply_adds:,}", shape


def _count(name: str, args: argparse.Namespace) -> tuple[Count, str]:
    """Counts a network without memory for its weights; returns the counts and the input's shape."""
    with torch.device("meta"):
        model = create_model(name, image_size=args.image_size, width=args.width)
    channels, size = (int(model.config[key]) for key in ("in_channels", "image_size"))  # type: ignore[index]
    shape = (channels, size, size)
    return count(model, shape), _sizes(shape)


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
