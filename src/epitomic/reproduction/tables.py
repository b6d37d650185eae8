"""The tables: which networks, by which recipe, how many seeds each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from epitomic.errors import unknown
from epitomic.training.recipe import Recipe


@dataclass(frozen=True)
class Table:
    """One table: the same recipe, thus the same budget, for every network in it.

    Attributes:
        title: What it shows, in a line.
        recipe: Name of the recipe.
        seeds: Of each network. The first network is the one that the others are compared with.
    """

    title: str
    recipe: str
    seeds: dict[str, int]


@dataclass(frozen=True)
class Planned:
    """One run of a table."""

    model: str
    seed: int

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.model}-{self.seed}"

    def resolve(self, recipe: Recipe) -> Recipe:
        """The table's recipe with this network and seed."""
        return replace(recipe, model=replace(recipe.model, name=self.model), seed=self.seed)


SMALL = ("epitomic_small", "epitomic_small_norm", "topographic_small_norm", "maxpool_small", "maxout_small")
TWINS = ("epitomic_small", "maxpool_small", "maxout_small")

TABLES: dict[str, Table] = {
    # On data that is there on every machine, in minutes: what the other tables do, to try.
    "digits": Table("scikit-learn's digits, the paper's small networks", "digits", dict.fromkeys(SMALL, 3)),
    "mnist": Table(
        "MNIST without augmentation, the paper's small networks", "mnist", {**dict.fromkeys(TWINS, 3), TWINS[0]: 5}
    ),
    "mnist_short": Table("MNIST, the small networks in 4 epochs", "mnist_short", dict.fromkeys(TWINS, 3)),
    "mnist_aug": Table(
        "MNIST with augmentation, the paper's small networks",
        "mnist_aug",
        {**dict.fromkeys(TWINS, 3), TWINS[0]: 5},
    ),
    "mnist_aug_dropout": Table("MNIST with augmentation, the first recipe", "mnist_aug_dropout", {"epitomic_small": 5}),
    "cifar10": Table("CIFAR-10, the paper's small network", "cifar10", {"epitomic_small": 3}),
    # The same network, its twins and its normalised version, narrower and shorter.
    "cifar10_short": Table(
        "CIFAR-10, the small networks in 10 epochs",
        "cifar10_short",
        dict.fromkeys(("epitomic_small", "epitomic_small_norm", "maxpool_small", "maxout_small"), 3),
    ),
    "cifar10_equal_time": Table(
        "CIFAR-10, the small network in the time of ten max-pooled epochs", "cifar10_equal_time", {"epitomic_small": 3}
    ),
    "cifar10_fast": Table("CIFAR-10, the fast networks", "cifar10_fast", {"epitomic_fast": 3, "maxpool_fast": 3}),
    "cifar10_long": Table("CIFAR-10, the fast network wider and longer", "cifar10_long", {"epitomic_fast": 1}),
    # The paper's Table 4, on ten of its classes, with the network that it says does not learn.
    "imagenette": Table(
        "Imagenette, the paper's ImageNet networks",
        "imagenette",
        {
            "epitomic": 3,
            "epitomic_norm": 1,
            "topographic": 1,
            "topographic_norm": 1,
            "maxpool": 3,
            "maxpool_norm": 1,
        },
    ),
}


def get_table(name: str) -> Table:
    """The table of this name."""
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return TABLES[name]


def plan(table: Table, models: list[str] | None = None, seeds: int | None = None) -> Iterator[Planned]:
    """The runs of a table: all networks with the first seed, then all with the second, so that it grows evenly.

    Args:
        table: Which table.
        models: Only these; None: all.
        seeds: Of each; None: the table's own numbers.
    """
    for model in models or ():
        if model not in table.seeds:
            raise unknown("network of this table", model, table.seeds)
    wanted = {model: seeds or count for model, count in table.seeds.items() if models is None or model in models}
    for seed in range(max(wanted.values())):
        yield from (Planned(model, seed) for model, count in wanted.items() if seed < count)
