"""Photographs by number, read by worker processes and given out in order."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info

from epitomic.data.standardisation import Standardize
from epitomic.support.errors import worker_lost

if TYPE_CHECKING:
    from PIL.Image import Image

TOLD = 10  # most bad images that are named on the terminal

LOST = (ConnectionError, EOFError, FileNotFoundError)  # what a process meets whose other end has died
Problems = list[tuple[str, str]]  # (image, reason)


class ImageSource(Protocol):
    """Images by number, from a store (`store.StoreImages`) or from class folders (`folders.FolderImages`).

    Attributes:
        classes: Names of the classes, in the order of the labels.
        labels: Class number of each image, (N,), int64.
        size: Short side of the images in pixels.
        fingerprint: Text that changes with the images.
    """

    classes: tuple[str, ...]
    labels: Tensor
    size: int
    fingerprint: str

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """Returns the name of an image for messages."""

    def read(self, index: int) -> Image:
        """Reads an image, or raises `BadImageError`."""

    def pixels(self, index: int) -> Any:
        """Reads an image as an array, (H, W, 3) uint8, or raises `BadImageError`."""


class BadImages(dict[str, str]):
    """Images that could not be read: name and reason. The first few are named on the terminal."""

    def note(self, problems: Problems) -> None:
        """Adds images, and names the new ones on the terminal until `TOLD` have been named."""
        for name, reason in problems:
            if name not in self and len(self) < TOLD:
                print(f"epitomic: skipped {name}: {reason}", file=sys.stderr)
            self[name] = reason


def default_workers() -> int:
    """Returns half the number of cores, from 1 to 8; the other half computes the network."""
    return max(1, min(8, (os.cpu_count() or 2) // 2))


def load_in_order(
    function: Callable[..., Any], items: Sequence[Tensor], workers: int, device: torch.device | None = None
) -> Iterator[Any]:
    """Yields ``function(item)`` for each item in order; ``workers`` processes call the function."""
    loader: DataLoader[Any] = DataLoader(
        items,  # type: ignore[arg-type]  # a sequence works as a data set
        batch_size=None,
        collate_fn=function,  # without batches the loader calls it on every item
        num_workers=workers,
        pin_memory=device is not None and device.type == "cuda",
        worker_init_fn=_begin_worker,
        generator=torch.Generator(),  # the loader draws a number that nobody uses; keep it off the global generator
    )
    batches = iter(loader)
    try:
        yield from batches
    except (RuntimeError, OSError, EOFError) as error:
        text = str(error)
        lost = "DataLoader worker" in text or isinstance(error, LOST)
        if not lost or text.startswith("Caught "):  # the function has raised it
            raise
        raise worker_lost(error) from None
    finally:
        # Not left to the garbage collector: Python waits at its exit for workers, and these ignore its SIGTERM.
        end_workers = getattr(batches, "_shutdown_workers", None)
        if end_workers is not None:
            end_workers()


def shared_bytes(*shape: int) -> Tensor:
    """Returns a uint8 tensor of zeros that a worker process can send to its parent without copying it."""
    if get_worker_info() is None:
        return torch.zeros(shape, dtype=torch.uint8)
    storage = torch.UntypedStorage._new_shared(math.prod(shape))  # a new file in memory, which is all zeros
    return torch.empty(0, dtype=torch.uint8).set_(storage).reshape(shape)


def _begin_worker(worker: int) -> None:
    """Ignores Ctrl-C and SIGTERM, which may reach every process. The training ends its workers after its step.

    The thread that hands tensors over says nothing if the training has ended meanwhile.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.excepthook = _tell_unless_lost


def _tell_unless_lost(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, LOST):
        sys.__excepthook__(kind, error, trace)


def to_numbers(images: Tensor, standardize: Standardize, noise: Tensor | None = None) -> Tensor:
    """Turns bytes, (N, H, W, 3), into standardised numbers, (N, 3, H, W). Adds colour noise, (N, 3), first if given."""
    pixels = images.permute(0, 3, 1, 2).float().div_(255)
    if noise is not None:
        pixels += noise[:, :, None, None].to(pixels.device)
    return standardize(pixels)
