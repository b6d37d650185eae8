"""`export_network`: a trained network in one file, checked against the original on real images."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epitomic._version import __version__
from epitomic.deployment import int8
from epitomic.deployment.formats import FORMATS, Runs, capture, check_format, open_exported, write
from epitomic.models.preprocessing import Preprocessing, PretrainedConfig
from epitomic.support.console import Tell, percent, tell_nobody
from epitomic.support.errors import UserError
from epitomic.support.files import write_atomically
from epitomic.surgery import for_export

CHECKED = 256  # images that the file is compared on
BATCH = 64
TOLERANCE = 1e-3  # largest difference of the scores, as a share of the largest score
SAME = 0.9  # share of the images that an int8 file must put into the same class


@dataclass(frozen=True)
class Result:
    """What `export_network` wrote, and how it compares with the original.

    Attributes:
        file: The file.
        images: Number of images that both were run on.
        difference: Largest difference of their scores, as a share of the largest score.
        same: Share of the images that both put into the same class.
    """

    file: Path
    images: int
    difference: float
    same: float


def export_network(
    model: nn.Module,
    to: str,
    file: str | Path,
    images: Tensor,
    *,
    calibration: Tensor | None = None,
    tell: Tell = tell_nobody,
) -> Result:
    """Writes a network to a file, and runs the file and the network on some images. If they differ, no file is left.

    Each epitomic layer is in the form that `for_export` chooses; with ``calibration``, it is one convolution.

    Args:
        model: A network that was loaded with its weights.
        to: ``"onnx"``, ``"torch"`` or ``"aoti"``.
        file: The file to write.
        images: Real images as the network's input, (N, C, S, S), to compare on.
        calibration: Other real images as input. The file computes in int8, with ranges of values from these images.
        tell: Called with what is being done and the share that is done.

    Raises:
        UserError: If the format is unknown or needs another package, or the file differs from the network.
    """
    check_format(to)
    file = Path(file)
    if file.is_dir():
        raise UserError(f"--out {file} is a folder: name a file, such as {file / ('model' + FORMATS[to])}")
    if file.suffix != FORMATS[to]:
        raise UserError(f"--out {file} must end with {FORMATS[to]} for --to {to}")
    if not len(images):
        raise UserError("there are no images to compare the file with the network on")
    if calibration is not None:
        int8.check(to, calibration)
    images = images[:CHECKED].float()
    exportable = for_export(model.cpu(), "auto" if calibration is None else "one_convolution")
    with tempfile.TemporaryDirectory() as temporary:
        built = Path(temporary) / f"model{FORMATS[to]}"
        tell("capturing the network", 0.0)
        program = capture(exportable, images[:2].repeat(2 // min(2, len(images)), 1, 1, 1))
        metadata = describe(model, to, int8=calibration is not None)
        if calibration is not None and to == "torch":
            tell("quantising the network", 0.2)
            program = int8.quantise_program(program, calibration)
        tell(f"writing the {to} file", 0.4)
        write(program, to, built, metadata)
        if calibration is not None and to == "onnx":
            tell("quantising the file", 0.6)
            int8.quantise_onnx(built, calibration)
        tell("comparing the file with the network", 0.8)
        result = compare(model, open_exported(to, built), images, file)
        check(result, quantised=calibration is not None)
        write_atomically(file, lambda path: shutil.copyfile(built, path))
    return result


def describe(model: nn.Module, to: str, *, int8: bool = False) -> dict[str, Any]:
    """Returns the metadata of a file: the classes, and how images become input."""
    preprocess = model.preprocess
    assert isinstance(preprocess, Preprocessing)
    config: PretrainedConfig = preprocess.config
    if config.mean is None or config.std is None:
        raise UserError(f"config.json of this {config.model} has no 'standardize' with mean and std")
    return {
        "format": to,
        "int8": int8,
        "model": config.model,
        "dataset": config.dataset,
        "classes": list(config.classes),
        "input": {
            "channels": config.in_channels,
            "size": config.image_size,
            "short_side": config.short_side,
            "resample": "bilinear",
            "crop": "centre",
            "mean": list(config.mean),
            "std": list(config.std),
            "pixels": "0 to 1, before mean and std",
        },
        "output": "scores before the softmax",
        "epitomic": __version__,
        "torch": torch.__version__,
    }


@torch.no_grad()
def compare(model: nn.Module, run: Runs, images: Tensor, file: Path) -> Result:
    """Runs a network and a file on the same images."""
    batches = images.split(BATCH)
    expected, found = (torch.cat([f(batch).float() for batch in batches]) for f in (model.eval(), run))
    largest = float(expected.abs().max())
    difference = float((expected - found).abs().max()) / max(largest, 1e-30)
    same = float((expected.argmax(1) == found.argmax(1)).float().mean())
    return Result(file, len(images), difference, same)


def check(result: Result, *, quantised: bool) -> None:
    """Raises an error if a file differs from its network by more than rounding, or in int8 by too many classes."""
    if quantised:
        if result.same < SAME:
            raise UserError(
                f"the int8 file puts only {percent(result.same, 1)} of {result.images} images into the same class, "
                f"less than {percent(SAME, 0)}: nothing was written; try more calibration images, or no --int8"
            )
    elif not result.difference <= TOLERANCE:  # NaN fails too
        raise UserError(
            f"the file's scores differ from the network's by {result.difference:.1e} of the largest score, more than "
            f"{TOLERANCE:.0e}: nothing was written"
        )


def as_input(model: nn.Module, files: Sequence[str]) -> Tensor:
    """Reads image files as a network's input."""
    preprocess = model.preprocess
    assert isinstance(preprocess, Preprocessing)
    return preprocess(list(files))
