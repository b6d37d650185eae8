"""A recipe: every setting of one experiment, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from epitomic.data.augment import Augmentation
from epitomic.data.crops import Photographs
from epitomic.data.memory import VIEWS
from epitomic.data.open import PHOTOGRAPHS
from epitomic.data.sets import NAMES
from epitomic.models import list_models
from epitomic.options import option


@dataclass(frozen=True)
class Data:
    """Which images."""

    name: str = option("digits", "image set", choices=(*NAMES, *PHOTOGRAPHS))
    validation: int = option(180, "training images held out; photographs have a folder `val` instead", at_least=1)
    views: str = option("one", "of each small test image, averaged; `shifted` are mirrored, too", choices=VIEWS)


@dataclass(frozen=True)
class Model:
    """Which network. None: the model's own default."""

    name: str = option("epitomic_small", "network", choices=list_models())
    width: float = option(1.0, "multiplies the channels of every layer", above=0, alias="width")
    dropout: float | None = option(None, "rate after the fully-connected layers", at_least=0, below=1)
    conv_dropout: float | None = option(None, "rate after the epitomic layers (small networks)", at_least=0, below=1)
    hidden: int | None = option(None, "outputs of the fully-connected layer (small networks)", at_least=1)
    batch_norm: bool | None = option(None, "batch normalisation (small networks)")
    whiten: bool | None = option(None, "whitening of the images (small networks)")
    depth: int | None = option(None, "layers of a block (fast networks)", at_least=1)

    def arguments(self) -> dict[str, Any]:
        """What `create_model` takes, without the name."""
        return {name: value for name, value in vars(self).items() if name != "name" and value is not None}


@dataclass(frozen=True)
class Optimizer:
    """Stochastic gradient descent with momentum. The gradient is the mean over the batch."""

    lr: float = option(0.01, "learning rate, before the schedule", above=0)
    momentum: float = option(0.9, "momentum", at_least=0, below=1)
    nesterov: bool = option(False, "Nesterov's momentum")
    weight_decay: float = option(5e-4, "on weights; none on biases, batch norms and normalised layers", at_least=0)
    bias_rate: float = option(1.0, "multiplies the rate of biases and batch norms", above=0)
    max_norm: float | None = option(None, "gradients longer than this are shortened to it", above=0)


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes."""

    name: str = option("linear", "kind", choices=("constant", "linear", "cosine", "plateau"))
    warmup: float = option(0.0, "epochs of linear rise from 0 at the start", at_least=0)
    factor: float = option(0.1, "plateau: multiplies the rate when validation stops improving", above=0, below=1)
    patience: int = option(5, "plateau: epochs without improvement before that", at_least=1)
    drops: int = option(3, "plateau: after so many, the next one ends the run", at_least=0)


@dataclass(frozen=True)
class Recipe:
    """One experiment."""

    data: Data = Data()
    model: Model = Model()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    augmentation: Augmentation = Augmentation()  # noqa: RUF009
    photographs: Photographs = Photographs()  # noqa: RUF009
    epochs: int = option(20, "passes over the training set", at_least=1)
    batch_size: int = option(128, "images per step, over all processes", at_least=1)
    accumulate: int = option(1, "parts a process takes its batch in, to save memory", at_least=1)
    label_smoothing: float = option(0.0, "share of each target spread over all classes", at_least=0, below=1)
    ema: float = option(
        0.0, "decay of the weight average that is evaluated; 0: the weights themselves", at_least=0, below=1
    )
    keep: str = option("best", "which epoch's weights: best by validation error, or last", choices=("best", "last"))
    seed: int = option(0, "of everything that is random", at_least=0, below=2**63)
    precision: str = option("32-true", "of the arithmetic", choices=("32-true", "64-true", "bf16-mixed"))
