"""The recipes by name, with every setting of each experiment; `recipe.py` says what the settings mean.

The page on results, docs/results.md, has the trials by which they were chosen.
"""

from __future__ import annotations

from dataclasses import replace

from epitomic.data.augmentation import Augmentation
from epitomic.data.photographs.crops import Photographs
from epitomic.support.errors import unknown
from epitomic.training.recipe import Data, Model, Optimizer, Recipe, Schedule

# The paper's settings for all its networks; the rate falls each time the validation error stops improving.
PAPER = Recipe(
    optimizer=Optimizer(lr=0.01, momentum=0.9, weight_decay=5e-4),
    schedule=Schedule(name="plateau", factor=0.1, patience=5, drops=3),
    batch_size=128,
    epochs=100,
)
MNIST = Data(name="mnist", validation=5000)
CIFAR10 = Data(name="cifar10", validation=5000)
SMALL = Model(name="epitomic_small", batch_norm=True)
# Adds batch norm, label smoothing, averaged weights and a rate that falls to zero to what the paper has.
MNIST_SMALL = Recipe(
    data=MNIST,
    model=replace(SMALL, conv_dropout=0.2),
    optimizer=Optimizer(lr=0.1, nesterov=True, weight_decay=1e-3),
    schedule=Schedule(name="linear", warmup=1),
    epochs=16,
    label_smoothing=0.1,
    ema=0.998,
    keep="last",
)
# 1,000 validation images are enough to draw curves; the recipes were chosen with 5,000.
CIFAR10_TABLE = replace(CIFAR10, validation=1000, views="shifted")
CIFAR10_SMALL = Recipe(
    data=CIFAR10_TABLE,
    optimizer=Optimizer(lr=0.1, nesterov=True),
    augmentation=Augmentation(shift=4, flip=True, alternate=True),
    label_smoothing=0.1,
    keep="last",
)
# Compares the networks at a fraction of the cost.
CIFAR10_SHORT = replace(
    CIFAR10_SMALL,
    model=replace(SMALL, conv_dropout=0.0, dropout=0.25, whiten=True),
    schedule=Schedule(name="linear", warmup=1),
    epochs=10,
    ema=0.998,
)
# Follows the airbench family (Jordan 2024): a short, high triangle of the rate, and biases at a rate of their own.
CIFAR10_FAST = Recipe(
    data=CIFAR10_TABLE,
    model=Model(name="epitomic_fast"),
    optimizer=Optimizer(lr=0.7, momentum=0.85, nesterov=True, weight_decay=1.3e-3, bias_rate=32),
    schedule=Schedule(name="linear", warmup=2),
    augmentation=Augmentation(shift=2, reflect=True, flip=True, alternate=True),
    epochs=12,
    batch_size=512,
    label_smoothing=0.2,
    ema=0.99,
    keep="last",
)

# 1,000 validation images are enough to draw curves.
MNIST_AUG = Recipe(
    data=replace(MNIST, validation=1000, views="nudged"),
    model=replace(SMALL, conv_dropout=0.0, dropout=0.3),
    optimizer=Optimizer(lr=0.1, nesterov=True, weight_decay=1e-3),
    schedule=Schedule(name="linear", warmup=1),
    augmentation=Augmentation(rotate=10, scale=0.1, shear=5, translate=1, elastic=0.5),
    epochs=20,
    label_smoothing=0.1,
    ema=0.999,
    keep="last",
)

# The paper's protocol for ImageNet on ten classes and small images, in a quarter of an hour on one core.
IMAGENETTE = replace(
    PAPER,
    data=Data(name="imagenette"),
    model=Model(name="epitomic", width=0.25),
    schedule=Schedule(name="linear"),
    photographs=Photographs(crop=112, size=128, flip=True, color_noise=0.1),
    batch_size=32,
    epochs=16,
    keep="last",
)

RECIPES: dict[str, Recipe] = {
    # The demonstration: its 1,797 images of 8 x 8 pixels ship with scikit-learn.
    "digits": Recipe(
        data=Data(name="digits", validation=180),
        model=Model(name="epitomic_small"),
        optimizer=Optimizer(lr=0.05, nesterov=True),
        schedule=Schedule(name="linear", warmup=2),
        augmentation=Augmentation(rotate=10, scale=0.1, shear=5, translate=0.7),
        batch_size=64,
        epochs=40,
        ema=0.98,
    ),
    "mnist": MNIST_SMALL,
    # Compares the networks in a quarter of the epochs.
    "mnist_short": replace(MNIST_SMALL, epochs=4),
    "mnist_aug": MNIST_AUG,
    # Has dropout in the epitomic layers, too, as in the paper, and tests one view.
    "mnist_aug_dropout": replace(MNIST_AUG, model=SMALL, data=replace(MNIST_AUG.data, views="one")),
    # Whitens the images, as do the methods that the paper compares with.
    "cifar10": replace(
        CIFAR10_SMALL,
        model=replace(SMALL, width=1.5, conv_dropout=0.05, dropout=0.4, whiten=True),
        schedule=Schedule(name="linear", warmup=2),
        epochs=30,
        ema=0.999,
    ),
    "cifar10_short": CIFAR10_SHORT,
    # 15 epitomic epochs take about as long as 10 max-pooled ones.
    "cifar10_equal_time": replace(CIFAR10_SHORT, epochs=15),
    "cifar10_fast": CIFAR10_FAST,
    # Fits into two hours on two cores, with the width and about the epochs of airbench95.
    "cifar10_long": replace(CIFAR10_FAST, model=replace(CIFAR10_FAST.model, width=1.5), epochs=16),
    "mnist_paper": replace(PAPER, data=MNIST),
    "cifar10_paper": replace(
        PAPER,
        data=CIFAR10,
        model=Model(name="epitomic_small", width=2.0),
        augmentation=Augmentation(shift=4, flip=True),
    ),
    # The paper's main experiment. It gives no number of epochs; Krizhevsky et al. had 90.
    "imagenet": replace(
        PAPER,
        data=Data(name="imagenet"),
        model=Model(name="epitomic"),
        photographs=Photographs(crop=220, size=256, flip=True, color_noise=0.1),
        epochs=90,
    ),
    "imagenette": IMAGENETTE,
    # A hundred classes, enough for a top-5 error. The images have 64 pixels, so 96 lose nothing and cost half of 128.
    "tiny_imagenet": replace(
        IMAGENETTE,
        data=Data(name="tiny_imagenet"),
        photographs=Photographs(crop=84, size=96, flip=True, color_noise=0.1),
        epochs=12,
    ),
    # Residual networks on the same classes, at their own size. Enlarged by an eighth, the images leave room for crops.
    "resnets": Recipe(
        data=Data(name="tiny_imagenet"),
        model=Model(name="epitomic_resnet"),
        optimizer=Optimizer(lr=0.1, nesterov=True),
        schedule=Schedule(name="linear", warmup=1),
        photographs=Photographs(crop=64, size=72, flip=True),
        epochs=15,
        label_smoothing=0.1,
        ema=0.999,
        keep="last",
        precision="bf16-mixed",
    ),
}


def get_recipe(name: str) -> Recipe:
    """Returns the recipe with this name, or raises an error that suggests one."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]
