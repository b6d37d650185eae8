"""Trained weights to start a training from: what they are, and whether they fit the images."""

from __future__ import annotations

from dataclasses import dataclass, fields

from epitomic.data.own.images import OwnSet
from epitomic.data.standardisation import Standardize
from epitomic.models.pretrained import CONFIG, find_pretrained, list_pretrained, read_config
from epitomic.support.errors import UserError
from epitomic.support.files import read_sealed
from epitomic.training.recipe import Model, Start

SMALL = 40  # pixels; images whose median short side is at most this take the small networks
RATE = 0.3  # factor on the learning rate of all layers but the last
SHIPPED = {  # kind of images -> weights to start from, if they ship
    "photographs": "epitomic_resnet-tiny_imagenet",
    "colour": "epitomic_fast-cifar10",
    "grey": "epitomic_small-mnist",
}


@dataclass(frozen=True)
class Weights:
    """Trained weights, and the settings that a network must share with them.

    Attributes:
        name: How the user named them.
        model: Settings of the network.
        start: Settings of the start.
        image_size: Height and width that they were trained on.
        channels: Number of image channels.
        photographs: Whether they were trained on photographs, and not on small images in memory.
    """

    name: str
    model: Model
    start: Start
    image_size: int
    channels: int
    photographs: bool

    @classmethod
    def read(cls, name: str) -> Weights:
        """Reads what the weights say about themselves.

        Raises:
            UserError: If there are none of this name, or they are of another library.
        """
        folder = find_pretrained(name)
        model, options = read_config(folder)
        config = read_sealed(folder / CONFIG)
        colors = Standardize.read(config, config.get("in_channels"), folder / CONFIG)
        known = {field.name for field in fields(Model)}
        mean, std = (",".join(map(repr, values)) for values in (colors.mean, colors.std))
        return cls(
            name,
            Model(model, **{key: value for key, value in options.items() if key in known}),
            Start(name, RATE, mean=mean, std=std),
            int(options["image_size"]),
            int(options["in_channels"]),
            isinstance(config.get("photographs"), dict),
        )

    def check(self, images: OwnSet) -> None:
        """Raises an error if the images are of another kind than these weights are for."""
        kind = kind_of(images)
        fits = self.photographs and self.channels == 3 if kind == "photographs" else not self.photographs
        if not fits or (self.channels == 1 and kind != "grey"):
            color = {1: "grey", 3: "colour"}.get(self.channels, f"{self.channels}-channel")
            takes = "photographs" if self.photographs else f"small {color} images of {self.image_size} pixels"
            have = f"{kind} of about" if kind == "photographs" else f"small {kind} images of about"
            other = SHIPPED[kind] if SHIPPED[kind] in list_pretrained() else None
            hint = f"--from {other} or --from none" if other else "--from none"
            raise UserError(
                f"--from {self.name} does not fit {images.title}: it is for {takes}, and these are {have} "
                f"{images.short_side} pixels; give {hint}"
            )


def kind_of(images: OwnSet) -> str:
    """Returns ``"photographs"``, or for small images ``"colour"`` or ``"grey"``."""
    if images.short_side > SMALL:
        return "photographs"
    return "grey" if images.grey else "colour"


def default_weights(images: OwnSet, model: str | None) -> str | None:
    """Returns the name of shipped weights that fit the images, and the network if one is named; None if none do."""
    name = SHIPPED[kind_of(images)]
    return name if name in list_pretrained() and model in (None, name.rpartition("-")[0]) else None
