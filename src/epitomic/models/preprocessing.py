"""How images become a network's input, from what the network's ``config.json`` says.

`PretrainedConfig` is that file with types. `Preprocessing` turns images of any size into a batch; a network that was
loaded has it as ``model.preprocess``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.support.errors import UserError
from epitomic.support.images import BadImageError, decode, read_bytes, resize_short, to_array, to_rgb

if TYPE_CHECKING:
    from PIL.Image import Image

LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey (ITU-R 601-2), as Pillow has them
Picture: TypeAlias = "Image | str | Path | Tensor"


@dataclass(frozen=True, eq=False)
class PretrainedConfig(Mapping[str, Any]):
    """What ``config.json`` says about a trained network. It is also a read-only mapping of all entries of that file.

    Attributes:
        model: Name of the network.
        num_classes: Number of classes.
        in_channels: Number of image channels.
        image_size: Height and width that the network sees.
        classes: Class names, in the order of the outputs; a class without a name has its number.
        dataset: Name of the image set that the network was trained on.
        mean: Mean of each channel, for pixels from 0 to 1; None if the file has none.
        std: Standard deviation of each channel, for pixels from 0 to 1; None if the file has none.
        short_side: Photographs are resized to this short side, and the network sees their centre. None: the middle
            square is resized to the size that the network sees.
    """

    model: str
    num_classes: int
    in_channels: int
    image_size: int
    classes: tuple[str, ...] = ()
    dataset: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    short_side: int | None = None
    entries: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, entries: Mapping[str, Any], options: Mapping[str, Any]) -> PretrainedConfig:
        """Reads the entries of ``config.json``; ``options`` are those of the network, which may have other classes."""
        count, channels = int(options["num_classes"]), int(options["in_channels"])
        names = entries.get("classes") or []
        if not isinstance(names, list | tuple):
            raise ValueError(f"its 'classes' must be a list of names, got {str(names)[:60]}")
        names = [str(name) for name in names]
        if count != entries.get("num_classes"):
            names = []  # a new last layer: the names are those of the old one
        standardize, photographs = entries.get("standardize"), entries.get("photographs")
        dataset = entries.get("dataset")
        return cls(
            model=str(options["model"]),
            num_classes=count,
            in_channels=channels,
            image_size=int(options["image_size"]),
            classes=(*names[:count], *map(str, range(len(names), count))),
            dataset=None if dataset is None else str(dataset),
            mean=_numbers(standardize, "mean", channels),
            std=_numbers(standardize, "std", channels),
            short_side=int(photographs["size"]) if isinstance(photographs, dict) and "size" in photographs else None,
            entries=dict(entries),
        )

    def __getitem__(self, key: str) -> Any:
        return self.entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def _numbers(values: Any, key: str, channels: int) -> tuple[float, ...] | None:
    found: Any = values.get(key) if isinstance(values, dict) else None
    fits = isinstance(found, list) and len(found) == channels and all(isinstance(v, int | float) for v in found)
    return tuple(map(float, found)) if fits else None


@dataclass(frozen=True)
class Preprocessing:
    """Turns images into a network's input.

    Call it with one image or a sequence of them: a path, a PIL image, or a tensor (C, H, W) of bytes or of numbers from
    0 to 1. A tensor (N, C, H, W) is a sequence. The result is a batch, (N, C, S, S), resized, cropped and standardised
    as in the network's evaluation. A tensor that has the network's size already is not resized.

    Attributes:
        config: What the network was trained with.
    """

    config: PretrainedConfig

    def __call__(self, images: Picture | Sequence[Picture]) -> Tensor:
        """Returns the batch, (N, C, S, S)."""
        if isinstance(images, Tensor) and images.dim() == 4:
            return self._standardize(self._fit(images))
        several = [*images] if isinstance(images, Sequence) and not isinstance(images, str) else [images]
        pixels = [self.pixels(image) for image in several]
        if not pixels:
            raise UserError("preprocess needs at least one image, got none")
        return self._standardize(torch.stack(pixels))

    def pixels(self, image: Picture) -> Tensor:
        """Returns one image as the network sees it, (C, S, S), with pixels from 0 to 1.

        Raises:
            UserError: If the image cannot be read, or does not fit.
        """
        if isinstance(image, str | Path):
            try:
                image = decode(read_bytes(Path(image)))
            except BadImageError as error:
                raise UserError(f"{image} cannot be read as an image: {error}") from None
        if isinstance(image, Tensor):
            if image.dim() != 3:
                raise UserError(f"an image must be a tensor (C, H, W), got shape {tuple(image.shape)}")
            return self._fit(image[None])[0]
        if not hasattr(image, "convert"):
            raise UserError(f"an image must be a path, a PIL image or a tensor, got {type(image).__name__}")
        return self.from_picture(image).float().div_(255)

    def from_picture(self, image: Image) -> Tensor:
        """Returns a PIL image as the network sees it, as bytes, (C, S, S)."""
        channels, size, short = self.config.in_channels, self.config.image_size, self.config.short_side
        if channels not in (1, 3):
            raise UserError(f"the network takes {channels} channels: an image has 1 or 3")
        try:
            image = to_rgb(image)
            image = image if channels == 3 else image.convert("L")
            image = middle_square(image, size) if short is None else _center(resize_short(image, short), size)
        except BadImageError as error:
            raise UserError(f"the image does not fit: {error}") from None
        return torch.from_numpy(to_array(image).reshape(size, size, channels).copy()).permute(2, 0, 1).contiguous()

    def _fit(self, images: Tensor) -> Tensor:
        """Returns tensors (N, C, H, W) as the network sees them: numbers from 0 to 1, resized and cropped."""
        channels, size, short = self.config.in_channels, self.config.image_size, self.config.short_side
        numbers = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        if numbers.shape[1] == 4 and channels != 4:
            raise UserError("an image tensor must have 1 or 3 channels, got 4: put a transparent image on white first")
        if numbers.shape[1] == 1 and channels == 3:
            numbers = numbers.expand(-1, 3, -1, -1)
        elif numbers.shape[1] == 3 and channels == 1:
            numbers = (numbers * numbers.new_tensor(LUMA).reshape(1, 3, 1, 1)).sum(1, keepdim=True)
        if numbers.shape[1] != channels:
            raise UserError(f"the network takes {channels} channels, the images have {numbers.shape[1]}")
        height, width = numbers.shape[2:]
        if (height, width) == (size, size):
            return numbers
        if short is None:  # the middle square
            edge = min(height, width)
            top, left = (height - edge) // 2, (width - edge) // 2
            numbers, height, width = numbers[:, :, top : top + edge, left : left + edge], edge, edge
        side = max(size, short or size)
        scale = side / min(height, width)
        target = [side if edge == min(height, width) else round(edge * scale) for edge in (height, width)]
        numbers = F.interpolate(numbers, target, mode="bilinear", antialias=True, align_corners=False)
        top, left = ((edge - size) // 2 for edge in target)
        return numbers[:, :, top : top + size, left : left + size].clamp(0, 1)

    def _standardize(self, pixels: Tensor) -> Tensor:
        mean, std = self.config.mean, self.config.std
        if mean is None or std is None:
            raise UserError(f"config.json of this {self.config.model} has no 'standardize' with mean and std")
        shape = (1, -1, 1, 1)
        return (pixels - pixels.new_tensor(mean).reshape(shape)) / pixels.new_tensor(std).reshape(shape)


def middle_square(image: Image, size: int) -> Image:
    """Resizes the middle square of an image to ``size`` x ``size`` pixels."""
    from PIL import Image as Pillow
    from PIL import ImageOps

    return ImageOps.fit(image, (size, size), Pillow.Resampling.BILINEAR)


def _center(image: Image, size: int) -> Image:
    """Cuts out the centre; an odd margin is smaller above and on the left, as in evaluation."""
    if min(image.size) < size:
        raise BadImageError(f"{image.width} x {image.height} pixels are smaller than the crop of {size}")
    left, top = (math.floor((side - size) / 2) for side in image.size)
    return image.crop((left, top, left + size, top + size))
