"""How to run a recipe: its images, and checks that all settings fit together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from epitomic.data.feed import Feed
from epitomic.data.own.feeds import open_own_photographs, open_own_small
from epitomic.data.photographs.open import PHOTOGRAPHS, open_photographs
from epitomic.data.shares import take_share
from epitomic.data.small.feed import MemoryFeed
from epitomic.data.small.sets import load_set
from epitomic.models.registry import model_options
from epitomic.support.errors import UserError
from epitomic.training.recipe import OWN, Recipe

TEN = 10  # crops of a test image, as in the paper


@dataclass(frozen=True)
class Settings:
    """How to run a recipe. These settings change results by rounding at most.

    Attributes:
        data_dir: Folder of the image sets; see `data.location.data_root` for the default.
        accelerator: Kind of device: ``"auto"`` (see `support.devices`), ``"cpu"``, ``"cuda"`` or ``"mps"``.
        devices: Number of processes on this machine.
        nodes: Number of machines.
        workers: Number of worker processes with which each process reads photographs.
        wait: Longest wait for another process, in seconds.
        save_every: Seconds between two checkpoints within an epoch.
        sync_batch_norm: Whether batches are normalised over all processes: ``"auto"`` (on CUDA), ``"on"``, ``"off"``.
        benchmark: Whether to time the algorithms at the first call of a shape, even if ``epitomic.benchmark`` is off.
        test: Whether to use the test images at the end; False while you try out settings.
        quiet: Show nothing.
    """

    data_dir: str | None = None
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1
    workers: int = 1
    wait: float = 600.0
    save_every: float = 60.0
    sync_batch_norm: str = "auto"
    benchmark: bool = False
    test: bool = True
    quiet: bool = False


def open_feed(recipe: Recipe, settings: Settings) -> Feed:
    """Opens the images of a recipe, or the share of them that it asks for."""
    feed = _open_all(recipe, settings)
    if recipe.data.share is not None:
        take_share(feed, recipe.data.share)
    return feed


def _open_all(recipe: Recipe, settings: Settings) -> Feed:
    data = recipe.data
    if data.name == OWN:
        return _open_own(recipe, settings)
    if data.name not in PHOTOGRAPHS:
        images = load_set(data.name, settings.data_dir)
        return MemoryFeed(
            images, data.validation, recipe.batch_size, recipe.augmentation, recipe.seed, views=data.views
        )
    return open_photographs(
        data.name,
        settings.data_dir,
        recipe.photographs,
        batch_size=recipe.batch_size,
        seed=recipe.seed,
        workers=settings.workers,
    )


def _open_own(recipe: Recipe, settings: Settings) -> Feed:
    """Opens a user's own images; ``--data-dir`` says where they are now."""
    data = recipe.data
    place = replace(data.place, source=settings.data_dir or data.place.source)
    how: dict[str, Any] = {
        **{"batch_size": recipe.batch_size, "seed": recipe.seed, "workers": settings.workers, "quiet": settings.quiet}
    }
    if data.side is None:
        how["crops"] = TEN if data.crops is None else data.crops
        return open_own_photographs(place, recipe.photographs, recipe.start.standardize, **how)
    channels = data.channels or 3
    start = recipe.start.standardize
    return open_own_small(place, data.side, channels, recipe.augmentation, start, views=data.views, **how)


def check_model(recipe: Recipe) -> None:
    """Raises an error if the recipe has settings that its network does not take, such as those of another network."""
    name, known = recipe.model.name, model_options(recipe.model.name)
    unfit = {option: value for option, value in recipe.model.arguments().items() if option not in known}
    if unfit:
        given = ", ".join(f"--model.{option} {value}" for option, value in unfit.items())
        without = " ".join(f"--model.{option} none" for option in unfit)
        raise UserError(f"{given} does not fit {name}, which takes {', '.join(known)}: add {without}")


def check_batches(recipe: Recipe, settings: Settings, images: int) -> None:
    """Raises an error if a batch does not split into equal parts, or is larger than the training set."""
    processes = settings.devices * settings.nodes
    parts = processes * recipe.accumulate
    if recipe.batch_size % parts:
        raise UserError(
            f"--batch-size {recipe.batch_size} does not split into equal parts for {processes} processes and "
            f"--accumulate {recipe.accumulate}: it must be a multiple of {parts}"
        )
    if recipe.batch_size > images:
        raise UserError(f"--batch-size {recipe.batch_size} is larger than the training set of {images} images")
