"""A recipe: every setting of one experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from epitomic.data.augmentation import Augmentation
from epitomic.data.own.images import Place
from epitomic.data.photographs.crops import Photographs
from epitomic.data.photographs.open import PHOTOGRAPHS
from epitomic.data.small.sets import NAMES
from epitomic.data.small.views import VIEWS
from epitomic.data.standardisation import Standardize
from epitomic.models import list_models
from epitomic.support.errors import UserError
from epitomic.support.options import option

OWN = "own"  # name of the image set that is a user's own


@dataclass(frozen=True)
class Data:
    """The images to train and test on."""

    name: str = option("digits", "image set; own is for any folder", choices=(*NAMES, *PHOTOGRAPHS, OWN))
    validation: int = option(180, "training images to validate on; photographs have a folder val instead", at_least=1)
    share: float | None = option(
        None, "share of the training images to learn from, always the same ones; none for all", above=0, below=1
    )
    views: str = option("one", "views of each small test image, whose predictions are averaged", choices=VIEWS)
    source: str | None = option(None, "own images: folder, CSV or Parquet file, or name of a data set")
    image_column: str | None = option(None, "own images: column of the images in a table; none finds it")
    label_column: str | None = option(None, "own images: column of the labels in a table; none finds it")
    side: int | None = option(
        None, "own images: height and width that small images are resized to; none for photographs", at_least=8
    )
    crops: int | None = option(
        None, "own photographs: crops of each test image, 1 or 10; none for 10", at_least=1, below=11
    )
    channels: int | None = option(None, "own small images: 1 for grey, 3 for colour", at_least=1, below=4)

    @property
    def place(self) -> Place:
        """Where a user's own images are."""
        return Place(str(self.source), self.image_column, self.label_column)


@dataclass(frozen=True)
class Model:
    """The network. A setting that is None has the network's own default."""

    name: str = option("epitomic_small", "network", choices=list_models())
    width: float = option(1.0, "factor on the number of channels of every layer", above=0, alias="width")
    dropout: float | None = option(None, "dropout rate after the fully-connected layers", at_least=0, below=1)
    conv_dropout: float | None = option(
        None, "dropout rate after the epitomic layers (small networks)", at_least=0, below=1
    )
    hidden: int | None = option(None, "outputs of the fully-connected layer (small networks)", at_least=1)
    batch_norm: bool | None = option(None, "whether to normalise batches (small networks)")
    whiten: bool | None = option(None, "whether to whiten the images (small networks)")
    depth: int | None = option(None, "layers in a block (fast networks)", at_least=1)

    def arguments(self) -> dict[str, Any]:
        """Returns what `create_model` takes besides the name."""
        return {name: value for name, value in vars(self).items() if name != "name" and value is not None}


@dataclass(frozen=True)
class Optimizer:
    """Stochastic gradient descent with momentum. The gradient is the mean over the batch."""

    lr: float = option(0.01, "learning rate that the schedule scales", above=0)
    momentum: float = option(0.9, "momentum", at_least=0, below=1)
    nesterov: bool = option(False, "whether to use Nesterov's momentum")
    weight_decay: float = option(5e-4, "weight decay; biases, batch norms and normalised layers have none", at_least=0)
    bias_rate: float = option(1.0, "factor on the learning rate of biases and batch norms", above=0)
    max_norm: float | None = option(None, "largest length of the gradient; longer ones are scaled down to it", above=0)


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes."""

    name: str = option("linear", "kind of schedule", choices=("constant", "linear", "cosine", "plateau"))
    warmup: float = option(0.0, "epochs in which the rate rises from 0 at the start", at_least=0)
    factor: float = option(0.1, "plateau: factor on the rate when validation stops improving", above=0, below=1)
    patience: int = option(5, "plateau: epochs without improvement before the rate falls", at_least=1)
    drops: int = option(3, "plateau: how often the rate falls before the run ends", at_least=0)


@dataclass(frozen=True)
class Start:
    """Trained weights to start from. The last layer is always new."""

    weights: str | None = option(
        None, "run, name or folder of weights to start from; none for random ones", alias="from"
    )
    rate: float | None = option(None, "factor on the learning rate of all layers but the last", above=0)
    freeze: bool | None = option(None, "whether to train the last layer alone")
    mean: str | None = option(None, "mean of each channel that the weights were trained with, such as 0.5,0.5,0.4")
    std: str | None = option(None, "standard deviation of each channel that the weights were trained with")

    @property
    def standardize(self) -> Standardize | None:
        """Standardisation of the weights."""
        if self.mean is None or self.std is None:
            return None
        return Standardize(_numbers("start.mean", self.mean), _numbers("start.std", self.std))


def _numbers(setting: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise UserError(f"--{setting} must be numbers with commas between them, got {text!r}") from None


@dataclass(frozen=True)
class Recipe:
    """All settings of one experiment."""

    data: Data = Data()
    model: Model = Model()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    augmentation: Augmentation = Augmentation()  # noqa: RUF009
    photographs: Photographs = Photographs()  # noqa: RUF009
    start: Start = Start()
    epochs: int = option(20, "passes over the training set", at_least=1)
    steps: int | None = option(None, "steps in the whole run, which may cut the last epoch short", at_least=1)
    batch_size: int = option(128, "images in a step, over all processes", at_least=1)
    accumulate: int = option(1, "parts in which a process takes its batch, to save memory", at_least=1)
    label_smoothing: float = option(0.0, "share of each target that is spread over all classes", at_least=0, below=1)
    ema: float = option(
        0.0, "decay of the average of the weights, which is evaluated instead of them; 0 for none", at_least=0, below=1
    )
    keep: str = option(
        "best", "epoch whose weights are kept, best by validation error or last", choices=("best", "last")
    )
    seed: int = option(0, "seed of everything random", at_least=0, below=2**63)
    precision: str = option(
        "32-true", "precision of the arithmetic", choices=("32-true", "tf32", "64-true", "bf16-mixed")
    )
    compile: bool | None = option(None, "whether to train by torch.compile; none for no")
