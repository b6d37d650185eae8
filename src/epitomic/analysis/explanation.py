"""What a network makes of one image: its classes, what each layer matched, and the image rebuilt from the matches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from epitomic.analysis.matches import Match, first_match, match_layers
from epitomic.analysis.reconstruction import SHOWN, Reconstruction, reconstruct
from epitomic.models.preprocessing import middle_square
from epitomic.support.errors import UserError
from epitomic.support.images import BadImageError, decode, read_bytes, to_array
from epitomic.training.run_folder import RunFolder


@dataclass(frozen=True)
class Explanation:
    """What a network makes of one image.

    Attributes:
        image: The image as the network was given it, as bytes, (C, H, W).
        label: Number of its class, or None if that is not known.
        probabilities: Probability of each class, (classes,).
        matches: What each epitomic layer matched; empty if the network has no such layer.
        rebuilt: The image rebuilt from the first layer's winners; empty if the first layer is not epitomic.
    """

    image: Tensor
    label: int | None
    probabilities: Tensor
    matches: list[Match]
    rebuilt: list[Reconstruction]

    def likely(self, count: int) -> list[int]:
        """Numbers of the most likely classes, the likeliest first, and of the true class if it is not among them."""
        best: list[int] = self.probabilities.topk(min(count, len(self.probabilities))).indices.tolist()
        return best if self.label is None or self.label in best else [*best, self.label]


def explain(run: RunFolder, image: Tensor | str | Path | int) -> Explanation:
    """Runs one image through the network and keeps what was matched.

    Args:
        run: A run with weights.
        image: Bytes (C, H, W), an image file, or the number of a test image.
    """
    label = None
    model = run.model  # raises an error if there are no weights
    if isinstance(image, int):
        test = run.test
        if not 0 <= image < len(test):
            raise UserError(
                f"IMAGE must be from 0 to {len(test) - 1} for the test images of {run.dataset}, got {image}"
            )
        pixels, label = test.images[image], int(test.labels[image])
    elif isinstance(image, Tensor):
        pixels = image
    else:
        config = run.config or {}
        pixels = read_image(image, int(config["in_channels"]), int(config["image_size"]))
    scores, matches = match_layers(model, run.to_input(pixels[None]))
    first = first_match(matches)
    rebuilt = [reconstruct(first, matches=count) for count in SHOWN] if first else []
    return Explanation(pixels, label, scores[0].softmax(0), matches, rebuilt)


def read_image(path: str | Path, channels: int, size: int) -> Tensor:
    """Reads an image file for a network: the middle square, resized, as bytes, (channels, size, size).

    Raises:
        UserError: If the file is not an image, or the network takes neither grey nor RGB.
    """
    if channels not in (1, 3):
        raise UserError(f"the network takes {channels} channels: an image file has 1 or 3")
    if not Path(path).exists():
        raise UserError(f"IMAGE {path} is not there: give an image file, or the number of a test image")
    try:
        image = decode(read_bytes(Path(path)))
    except BadImageError as error:
        raise UserError(f"IMAGE {path} cannot be read as an image: {error}") from None
    image = middle_square(image.convert("L") if channels == 1 else image, size)
    return torch.from_numpy(to_array(image).reshape(size, size, channels).copy()).permute(2, 0, 1).contiguous()
