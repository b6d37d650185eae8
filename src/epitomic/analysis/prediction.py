"""The classes that a network finds in image files."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epitomic.models.class_names import readable
from epitomic.models.preprocessing import Preprocessing
from epitomic.support.errors import UserError
from epitomic.support.images import SUFFIXES, BadImageError, decode, read_bytes

BATCH = 32  # images that go through the network at once
STDIN = "-"  # name of an image that comes from standard input


@dataclass(frozen=True)
class Prediction:
    """What a network says about one image, or why it could say nothing.

    Attributes:
        file: Path of the image as it was given.
        top: The likeliest classes and their probabilities, the likeliest first; empty if the image is bad.
        problem: Why the image could not be read; None for a good image.
    """

    file: str
    top: tuple[tuple[str, float], ...] = ()
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the prediction as `epitomic predict --format json` writes it."""
        return {"file": self.file, "top": [{"class": name, "probability": share} for name, share in self.top]}


@torch.no_grad()
def predict(
    model: nn.Module, files: Iterable[str | tuple[str, bytes]], classes: Sequence[str], *, top: int = 5
) -> Iterator[Prediction]:
    """Yields the likeliest classes of each image, in the order of the files.

    Args:
        model: A network that was loaded with its weights.
        files: Paths, or pairs of a name and the contents of an image file.
        classes: Class names, in the order of the network's outputs.
        top: Number of classes to name.
    """
    preprocess = model.preprocess
    assert isinstance(preprocess, Preprocessing)
    parameter = next(model.parameters())
    model.eval()
    for batch in _batches(files):
        read = [(name, *_read(contents, name, preprocess)) for name, contents in batch]
        good = [pixels for _, pixels, _ in read if pixels is not None]
        shares: Iterator[Tensor] = iter(())
        if good:
            shares = iter(model(preprocess(torch.stack(good)).to(parameter)).float().softmax(1).cpu())  # (N, classes)
        for name, pixels, problem in read:
            if pixels is None:
                yield Prediction(name, problem=problem)
                continue
            best = next(shares).topk(min(top, len(classes)))
            found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            yield Prediction(name, tuple((classes[label], share) for label, share in found))


def _batches(files: Iterable[str | tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes | None]]]:
    batch: list[tuple[str, bytes | None]] = []
    for file in files:
        batch.append((file, None) if isinstance(file, str) else file)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _read(contents: bytes | None, name: str, preprocess: Preprocessing) -> tuple[Tensor | None, str | None]:
    """Returns an image as bytes, (C, S, S), or the reason why it cannot be read."""
    try:
        image = decode(read_bytes(Path(name)) if contents is None else contents)
        return preprocess.from_picture(image), None
    except (BadImageError, UserError) as error:
        return None, str(error)


def find_files(words: Sequence[str], stdin: io.BufferedIOBase | Any) -> list[str | tuple[str, bytes]]:
    """Returns the images that the words of a command line name: files, folders with all below them, or ``-``.

    ``-`` stands for standard input: the bytes of one image, or the paths of images, one a line.

    Raises:
        UserError: If a folder has no images, or standard input is empty.
    """
    found: list[str | tuple[str, bytes]] = []
    for word in words:
        if word == STDIN:
            found += _from_stdin(stdin.read())
        elif Path(word).is_dir():
            inside = sorted(
                os.path.join(folder, name)
                for folder, _, names in os.walk(word)
                for name in names
                if name.lower().endswith(SUFFIXES) and not name.startswith(".")
            )
            if not inside:
                raise UserError(f"IMAGE {word} is a folder without images ({', '.join(SUFFIXES)})")
            found += inside
        else:
            found.append(word)
    return found


def _from_stdin(contents: bytes) -> list[str | tuple[str, bytes]]:
    if not contents.strip():
        raise UserError("IMAGE - reads standard input, which is empty: send an image, or paths, one a line")
    try:
        text = contents.decode()
    except UnicodeDecodeError:
        text = "\0"
    return [(STDIN, contents)] if "\0" in text else [line for line in text.splitlines() if line.strip()]


def class_names(classes: Sequence[str], file: str | Path | None = None) -> tuple[str, ...]:
    """Returns the names to show for a network's classes.

    Args:
        classes: The classes as the network knows them. WordNet ids of Imagenette and Tiny-ImageNet get English names.
        file: File with other names: one name a line for all classes in order, or lines of a class and its name with
            a tab or comma between them, or a JSON list or object of the same.

    Raises:
        UserError: If the file does not fit the classes.
    """
    if file is None:
        return readable(classes)
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
        given = json.loads(text) if text.lstrip().startswith(("{", "[")) else _name_lines(text)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read --names {file}: {error}") from None
    if isinstance(given, dict):
        if not set(given) & set(classes):
            raise UserError(f"--names {file} names none of the network's classes, such as {classes[0]!r}")
        return tuple(str(given.get(old, new)) for old, new in zip(classes, readable(classes), strict=True))
    if len(given) != len(classes):
        raise UserError(f"--names {file} has {len(given)} names, and the network has {len(classes)} classes")
    return tuple(map(str, given))


def _name_lines(text: str) -> dict[str, str] | list[str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for mark in ("\t", ","):
        if lines and all(mark in line for line in lines):
            pairs = (line.split(mark, 1) for line in lines)
            return {key.strip(): name.strip() for key, name in pairs}
    return lines
