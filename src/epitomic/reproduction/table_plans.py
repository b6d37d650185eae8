"""The plan of each accuracy table: which networks, by which recipe, with how many seeds.

``imagenette`` and ``tiny_imagenet`` stand in for Table 4 of the paper (ImageNet), and their curves for Figure 3. The
tables of MNIST and CIFAR-10 are about Table 6. Table 5 (Caltech-101) is in `transfer_table`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from epitomic.support.errors import unknown
from epitomic.training.recipe import Recipe


@dataclass(frozen=True)
class TablePlan:
    """The plan of one table: every network is trained by the same recipe."""

    name: str  # name of the table and of its recipe
    title: str  # what the table shows
    seeds: dict[str, int]  # network -> number of seeds
    pairs: tuple[tuple[str, str], ...] = ()  # networks to compare; none compares the first with each of the others


@dataclass(frozen=True)
class PlannedRun:
    """One run of a table."""

    model: str
    seed: int

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return f"{self.model}-{self.seed}"

    def resolve(self, recipe: Recipe) -> Recipe:
        """Returns the table's recipe with this network and seed."""
        return replace(recipe, model=replace(recipe.model, name=self.model), seed=self.seed)


SMALL = ("epitomic_small", "epitomic_small_norm", "topographic_small_norm", "maxpool_small", "maxout_small")
INIT = "epitomic_small_maxpool_init"  # starts as max-pooling
TWINS = dict.fromkeys(("epitomic_small", "maxpool_small", "maxout_small"), 3)
# What the paper says about its networks for ImageNet: epitomes against max-pooling, and with normalisation or without.
PAPER_PAIRS = (
    ("epitomic", "maxpool"),
    ("epitomic_norm", "maxpool_norm"),
    ("epitomic_norm", "epitomic"),
    ("maxpool_norm", "maxpool"),
    ("topographic_norm", "topographic"),
    ("topographic_norm", "epitomic_norm"),
    ("epitomic", "alexnet"),
)

TABLES = {
    # To try out the command: minutes, on images that come with scikit-learn.
    "digits": TablePlan("digits", "scikit-learn's digits, the paper's small networks", dict.fromkeys(SMALL, 3)),
    # Table 6, MNIST.
    "mnist": TablePlan(
        "mnist", "MNIST without augmentation, the paper's small networks", {**TWINS, "epitomic_small": 5}
    ),
    "mnist_short": TablePlan("mnist_short", "MNIST, the small networks in 4 epochs", TWINS),
    "mnist_aug": TablePlan(
        "mnist_aug", "MNIST with augmentation, the paper's small networks", {**TWINS, "epitomic_small": 5}
    ),
    "mnist_aug_dropout": TablePlan(
        "mnist_aug_dropout", "MNIST with augmentation, the first recipe", {"epitomic_small": 5}
    ),
    # Table 6, CIFAR-10.
    "cifar10": TablePlan("cifar10", "CIFAR-10, the paper's small network", {"epitomic_small": 3}),
    "cifar10_short": TablePlan(
        "cifar10_short",
        "CIFAR-10, the small networks in 10 epochs",
        dict.fromkeys(("epitomic_small", "epitomic_small_norm", INIT, "maxpool_small", "maxout_small"), 3),
        (
            *(("epitomic_small", other) for other in ("maxpool_small", "maxout_small", "epitomic_small_norm")),
            *((INIT, other) for other in ("maxpool_small", "epitomic_small")),
        ),
    ),
    "cifar10_equal_time": TablePlan(
        "cifar10_equal_time", "CIFAR-10, the small network in the time of ten max-pooled epochs", {"epitomic_small": 3}
    ),
    "cifar10_fast": TablePlan("cifar10_fast", "CIFAR-10, the fast networks", {"epitomic_fast": 3, "maxpool_fast": 3}),
    "cifar10_long": TablePlan("cifar10_long", "CIFAR-10, the fast network wider and longer", {"epitomic_fast": 1}),
    # Table 4 on ten classes of ImageNet, with `topographic`, which the paper says does not learn.
    "imagenette": TablePlan(
        "imagenette",
        "Imagenette, the paper's ImageNet networks",
        {
            **dict.fromkeys(("epitomic", "epitomic_norm", "maxpool", "maxpool_norm"), 5),
            **dict.fromkeys(("topographic", "topographic_norm", "alexnet"), 3),
        },
        PAPER_PAIRS,
    ),
    # Table 4 on a hundred classes, in the paper's own measure, the top-5 error.
    "tiny_imagenet": TablePlan(
        "tiny_imagenet",
        "Tiny-ImageNet-100, the paper's ImageNet networks",
        {
            **dict.fromkeys(("epitomic", "epitomic_norm", "maxpool", "maxpool_norm"), 3),
            **dict.fromkeys(("topographic_norm", "alexnet"), 1),
        },
        PAPER_PAIRS,
    ),
    # A question that the paper could not ask: does an epitomic layer help a residual network?
    "resnets": TablePlan(
        "resnets",
        "Tiny-ImageNet-100, residual networks that halve the image in four ways",
        dict.fromkeys(("epitomic_resnet", "strided_resnet", "maxpool_resnet", "blur_resnet"), 3),
    ),
}


def get_table(name: str) -> TablePlan:
    """Returns the plan of a table, or raises an error with near names."""
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return TABLES[name]


def plan_runs(table: TablePlan, models: list[str] | None = None, seeds: int | None = None) -> Iterator[PlannedRun]:
    """Yields the runs of a table: every network with the first seed, then every network with the second.

    ``models`` names the networks to run, ``seeds`` is the number of seeds of each; None means as planned.
    """
    for model in models or ():
        if model not in table.seeds:
            raise unknown("network of this table", model, table.seeds)
    wanted = {model: seeds or count for model, count in table.seeds.items() if models is None or model in models}
    for seed in range(max(wanted.values())):
        yield from (PlannedRun(model, seed) for model, count in wanted.items() if seed < count)
