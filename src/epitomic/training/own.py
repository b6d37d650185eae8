"""The recipe for a user's own images, chosen from the images themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from epitomic.data.augmentation import Augmentation
from epitomic.data.own.images import OwnSet, Place
from epitomic.support.console import counted
from epitomic.training.recipe import OWN, Data, Model, Optimizer, Recipe, Schedule, Start
from epitomic.training.start import Weights, default_weights, kind_of

SMALLEST, LARGEST, STEP = 64, 224, 16  # pixels of the crops that the network sees
ZOOM = 0.35  # smallest share of a photograph that a training crop enlarges
BATCH = 32
EPOCHS = 30  # if no time is given
NETWORKS = {"photographs": "epitomic_resnet", "colour": "epitomic_small", "grey": "epitomic_small"}


def own_recipe(images: OwnSet, place: Place, given: Mapping[str, str]) -> Recipe:
    """Chooses all settings for a user's own images.

    Args:
        images: The images.
        place: Where they are.
        given: Settings on the command line, with their values. They decide which weights fit, and are applied later.

    Raises:
        UserError: If the images do not fit the weights that are named.
    """
    kind, model = kind_of(images), given.get("model.name")
    name = given.get("start.weights", default_weights(images, model))
    weights = None if name is None or name.lower() == "none" else Weights.read(name)
    if weights is not None:
        weights.check(images)
    batch = min(BATCH, 1 << (max(1, len(images.parts["train"]) // 4).bit_length() - 1))
    recipe = Recipe(
        data=replace(Data(OWN), source=place.source, image_column=place.image_column, label_column=place.label_column),
        model=weights.model if weights else Model(model or NETWORKS[kind]),
        optimizer=Optimizer(lr=0.05, nesterov=True, weight_decay=5e-4),
        schedule=Schedule(name="cosine", warmup=1),
        start=weights.start if weights else Start(),
        epochs=EPOCHS,
        batch_size=max(2, batch),
        label_smoothing=0.1,
        ema=0.99,
        keep="last",
    )
    if kind == "photographs":
        crop = given.get("photographs.crop", "")
        return with_crop(recipe, int(crop) if crop.isdecimal() else fitting_crop(images.short_side))
    return _small(recipe, images, weights)


def with_crop(recipe: Recipe, crop: int) -> Recipe:
    """Returns the recipe with another size of the crops; photographs are a little larger."""
    photographs = replace(recipe.photographs, crop=crop, size=round(crop * 8 / 7), zoom=ZOOM)
    return replace(recipe, photographs=photographs)


def fitting_crop(short_side: int) -> int:
    """Returns the largest crop that the images fill, from 64 to 224 pixels.

    >>> fitting_crop(50), fitting_crop(128), fitting_crop(1000)
    (64, 112, 224)
    """
    return max(SMALLEST, min(LARGEST, short_side * 7 // 8 // STEP * STEP))


def _small(recipe: Recipe, images: OwnSet, weights: Weights | None) -> Recipe:
    """Returns the recipe for small images in memory, grey or in colour."""
    channels = 1 if images.grey else 3
    side = min(32, max(16, images.short_side + 3 >> 2 << 2))
    if weights is not None:
        side, channels = weights.image_size, weights.channels
    elif recipe.model.name.endswith("_small"):
        recipe = replace(recipe, model=replace(recipe.model, batch_norm=True))
    return replace(
        recipe,
        data=replace(recipe.data, side=side, channels=channels),
        augmentation=Augmentation(shift=max(1, side // 12), flip=channels == 3),
    )


def describe(recipe: Recipe, images: OwnSet) -> str:
    """Says in one line what was chosen for the images."""
    counts = ", ".join(
        f"{len(numbers):,} to {verb}" for verb, numbers in zip(VERBS, images.parts.values(), strict=True)
    )
    size = f"{recipe.photographs.crop} pixels of {recipe.photographs.size}"
    if recipe.data.side is not None:
        size = f"{recipe.data.side} pixels, {'grey' if recipe.data.channels == 1 else 'in colour'}"
    start = f"from {recipe.start.weights}" if recipe.start.weights else "from random weights"
    frozen = ", last layer alone" if recipe.start.freeze else ""
    length = counted(recipe.epochs, "epoch")
    if recipe.steps is not None:
        length = f"{counted(recipe.steps, 'step')} in {length}"
    return (
        f"{images.title}: {len(images.classes)} classes; {counts}; {recipe.model.name} {start}{frozen}, at {size}, "
        f"{length} of batches of {recipe.batch_size}"
    )


VERBS = ("train on", "validate on", "test on")
