"""Lists the networks: layers, parameters, multiply-adds, input size; with a name, its layers.

epitomic models
epitomic models epitomic
"""

from __future__ import annotations

import argparse

import torch

from epitomic.errors import UserError, unknown
from epitomic.models import count, create_model, list_models


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="show the layers of this one")
    parser.add_argument("--width", type=float, default=1.0, help="multiplies the channels")
    parser.add_argument(
        "--image-size", type=int, metavar="PIXELS", help="height and width; the model's own if not given"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the table."""
    names = list_models()
    if args.model is not None and args.model not in names:
        raise unknown("model", args.model, names)
    if args.model is None:
        print(f"{'model':<24}{'layers':>7}{'parameters':>13}{'multiply-adds':>16}  input")
    for name in [args.model] if args.model else names:
        try:
            with torch.device("meta"):
                model = create_model(name, image_size=args.image_size, width=args.width)
        except UserError as error:
            if args.model is not None or args.image_size is None:
                raise
            print(f"{name:<24}{error}")
            continue
        config = model.config
        size = (config["in_channels"], config["image_size"], config["image_size"])  # type: ignore[index]
        total = count(model, size)  # type: ignore[arg-type]
        learned = [layer for layer in total.layers if layer.multiply_adds]
        shape = " x ".join(map(str, size))
        if args.model is None:
            print(f"{name:<24}{len(learned):>7}{total.parameters:>13,}{total.multiply_adds:>16,}  {shape}")
            continue
        print(f"{name}, input {shape}\n{'layer':<24}{'type':<20}{'output':>16}{'parameters':>13}{'multiply-adds':>16}")
        for layer in total.layers:
            output = " x ".join(map(str, layer.output))
            print(f"{layer.name:<24}{layer.type:<20}{output:>16}{layer.parameters:>13,}{layer.multiply_adds:>16,}")
        print(f"{'all':<24}{'':<36}{total.parameters:>13,}{total.multiply_adds:>16,}")
    return 0
