"""What a training is set up with: its images, its devices, and the checks that they fit the recipe."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_fabric import Fabric
from lightning_fabric.utilities.exceptions import MisconfigurationException

from epitomic.data import PHOTOGRAPHS, Feed, MemoryFeed, load_set, open_photographs
from epitomic.errors import UserError
from epitomic.models.registry import model_options
from epitomic.training.recipe import Recipe


@dataclass(frozen=True)
class Settings:
    """How to run a recipe: what changes no result but by rounding.

    Attributes:
        data_dir: Where the image sets are; None: see `data.sets.data_root`.
        accelerator: Fabric's: ``"cpu"``, ``"cuda"``, ``"mps"`` or ``"auto"``.
        devices: Processes on this machine.
        nodes: Machines.
        workers: Of each process, that read images from disk.
        save_every: Seconds between checkpoints within an epoch.
        test: Whether to look at the test set at the end; not while settings are still being chosen.
        quiet: Show nothing.
    """

    data_dir: str | None = None
    accelerator: str = "cpu"
    devices: int = 1
    nodes: int = 1
    workers: int = 1
    save_every: float = 60.0
    test: bool = True
    quiet: bool = False


def open_feed(recipe: Recipe, settings: Settings) -> Feed:
    """The images of a recipe."""
    data = recipe.data
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


def create_fabric(recipe: Recipe, settings: Settings) -> Fabric:
    """Lightning Fabric on the devices of the settings, not launched yet."""
    try:
        return Fabric(
            accelerator=settings.accelerator,
            devices=settings.devices,
            num_nodes=settings.nodes,
            strategy="ddp" if settings.devices * settings.nodes > 1 else "auto",
            precision=recipe.precision,  # type: ignore[arg-type]
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        chosen = f"--accelerator {settings.accelerator} --devices {settings.devices} --precision {recipe.precision}"
        raise UserError(f"cannot use {chosen} here: {error}") from None


def check_model(recipe: Recipe) -> None:
    """An error if the recipe, perhaps made for another network, has settings that this one does not take."""
    name, known = recipe.model.name, model_options(recipe.model.name)
    unfit = {option: value for option, value in recipe.model.arguments().items() if option not in known}
    if unfit:
        given = ", ".join(f"--model.{option} {value}" for option, value in unfit.items())
        without = " ".join(f"--model.{option} none" for option in unfit)
        raise UserError(f"not for {name}, which takes {', '.join(known)}: {given}; add {without}")


def check_batches(recipe: Recipe, settings: Settings, images: int) -> None:
    """An error if the global batch does not split into equal parts, or there are not that many images."""
    parts = settings.devices * settings.nodes * recipe.accumulate
    if recipe.batch_size % parts:
        raise UserError(
            f"--batch_size {recipe.batch_size} does not split into equal parts for {settings.devices * settings.nodes} "
            f"processes and --accumulate {recipe.accumulate}: it must be a multiple of {parts}"
        )
    if recipe.batch_size > images:
        raise UserError(f"--batch_size {recipe.batch_size} is larger than the training set of {images} images")
