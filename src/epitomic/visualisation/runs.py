"""Opens a run folder for looking at: what is there of it, finished or not."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epitomic.data import NAMES, PHOTOGRAPHS, Split, Standardize, load_set
from epitomic.data.open import open_validation
from epitomic.errors import UserError
from epitomic.files import read_json
from epitomic.models import from_pretrained
from epitomic.models.pretrained import find_pretrained
from epitomic.models.whitening import LocalWhitening
from epitomic.rng import generator

LOOKED_AT = 1000  # photographs of a test set, at most


@dataclass(frozen=True)
class RunView:
    """One run folder, read only. What an unfinished run does not have yet is None or empty.

    Attributes:
        folder: Where.
        recipe: The resolved recipe, as JSON.
        config: The network, its classes and the images' mean; None before the first epoch is over.
        facts: Command, versions, machine.
        results: The test set's figures; None if the run is not finished.
        metrics: A line an epoch.
        data_dir: Where the image sets are; None: see `data.sets.data_root`.
    """

    folder: Path
    recipe: dict[str, Any]
    config: dict[str, Any] | None
    facts: dict[str, Any]
    results: dict[str, Any] | None
    metrics: list[dict[str, float]]
    data_dir: str | None = None

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.resolve().name

    @property
    def model_name(self) -> str:
        """Of the network."""
        return str((self.config or {}).get("model") or _entry(self.recipe, "model", "name") or "network")

    @property
    def dataset(self) -> str:
        """Of the image set."""
        return str((self.config or {}).get("dataset") or _entry(self.recipe, "data", "name") or "unknown images")

    @property
    def seed(self) -> int:
        """Of everything random in the run."""
        return int(self.recipe.get("seed", 0))

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names, in the order of the labels; numbers where they have no names."""
        config = self.config or {}
        names = [str(name) for name in config.get("classes") or ()]
        return (*names, *map(str, range(len(names), int(config.get("num_classes", 0)))))

    @property
    def finished(self) -> bool:
        """Whether the test set has been looked at."""
        return self.results is not None

    def _check_weights(self) -> None:
        if self.config is None and self.results is not None:
            raise UserError(
                f"{self.folder} is finished, but its weights are not kept there: `epitomic reproduce` leaves them in "
                "the folder that its --runs names"
            )
        if self.config is None:
            raise UserError(
                f"{self.folder} has no weights yet, they come with the end of the first epoch: "
                f"go on with `epitomic train --resume --out {self.folder}`"
            )

    @cached_property
    def model(self) -> nn.Module:
        """The kept weights so far, ready for evaluation."""
        self._check_weights()
        return from_pretrained(self.folder)

    @cached_property
    def standardize(self) -> Standardize:
        """The standardisation that the network was trained with."""
        config = self.config or {}
        return Standardize.read(config, config.get("in_channels"), self.folder / "config.json")

    @cached_property
    def test(self) -> Split:
        """The test images; of photographs the centre crops of some, always the same, in a random order.

        Raises:
            UserError: If they are not here; it says how to get them.
        """
        self._check_weights()
        if self.dataset not in (*NAMES, *PHOTOGRAPHS):
            raise UserError(f"{self.folder / 'config.json'} names no image set that is known: {self.dataset}")
        config = self.config or {}
        if self.dataset in PHOTOGRAPHS:
            return self._photographs(config)
        try:
            images = load_set(self.dataset, self.data_dir)
        except UserError as error:
            raise UserError(f"the images of {self.folder} ({self.dataset}) are not here: {error}") from None
        expected = (config.get("in_channels"), config.get("image_size"), config.get("num_classes"))
        got = (images.channels, images.image_size, len(images.classes))
        if expected != got:
            raise UserError(
                f"{self.folder / 'config.json'}: the network is for (channels, size, classes) {expected}, "
                f"and {self.dataset} has {got}"
            )
        return images.test

    @property
    def test_images(self) -> int:
        """How many the test set has."""
        test = (self.results or {}).get("test")
        return int(test["images"]) if test else len(self.test)

    def _photographs(self, config: dict[str, Any]) -> Split:
        from epitomic.data.crops import center_crop
        from epitomic.data.pixels import BadImageError

        source = open_validation(self.dataset, self.data_dir, config, self.folder / "config.json")
        crop = int(config["image_size"])
        images, kept = [], []
        for index in torch.randperm(len(source), generator=generator("looked at"))[:LOOKED_AT].tolist():
            try:
                images.append(torch.from_numpy(center_crop(source.read(index), crop)[0].copy()))
            except BadImageError:
                continue
            kept.append(index)
        if not images:
            raise UserError(f"none of the {len(source)} test images of {self.dataset} can be read")
        return Split(torch.stack(images).permute(0, 3, 1, 2).contiguous(), source.labels[torch.tensor(kept)])

    def to_input(self, images: Tensor) -> Tensor:
        """(N, C, H, W) bytes -> what the network takes, as in evaluation."""
        return self.standardize(images.float().div_(255))

    def to_pixels(self, x: Tensor) -> Tensor:
        """The way back from what the first layer that learns is given: (N, C, H, W), 0 to 1 and not clamped."""
        whitening = getattr(self.model, "whitening", None)
        if isinstance(whitening, LocalWhitening):
            x = whitening.undo(x)
        mean, std = (x.new_tensor(v).reshape(1, -1, 1, 1) for v in (self.standardize.mean, self.standardize.std))
        return x * std + mean


def open_run(folder: str | Path, data_dir: str | None = None) -> RunView:
    """A run folder that ``epitomic train`` made, a folder with weights alone, or weights that ship with the package.

    Raises:
        UserError: If it is not one; the message says what is missing.
    """
    folder = find_pretrained(folder)
    names = ("recipe.json", "config.json", "run.json", "results.json")
    recipe, config, facts, results = (read_json(folder / n) if (folder / n).is_file() else None for n in names)
    if not (folder / "model.safetensors").is_file():
        config = None
    if recipe is None and config is None:
        raise UserError(f"{folder} is no run folder: it has neither recipe.json nor config.json with model.safetensors")
    return RunView(folder, recipe or {}, config, facts or {}, results, _read_metrics(folder / "metrics.csv"), data_dir)


def open_runs(folders: Sequence[str | Path], data_dir: str | None = None) -> list[RunView]:
    """`open_run` for each."""
    return [open_run(folder, data_dir) for folder in folders]


def labels(runs: Sequence[RunView]) -> list[str]:
    """A short name for each run: the network, and the folder where networks or image sets would not tell them apart.

    Runs that differ in their seed alone have the same name, and no others.
    """
    firsts = {group_key(run): run for run in reversed(runs)}  # the first run of each group
    several = len({run.dataset for run in runs}) > 1
    alike: dict[str, list[str]] = {}  # groups by a name without a folder
    for key, run in firsts.items():
        alike.setdefault(f"{run.model_name}, {run.dataset}" if several else run.model_name, []).append(key)
    names = {}
    for name, keys in alike.items():
        ends = path_ends([firsts[key].folder for key in keys])
        names.update({key: f"{name} ({end})" if len(keys) > 1 else name for key, end in zip(keys, ends, strict=True)})
    return [names[group_key(run)] for run in runs]


def titles(runs: Sequence[RunView]) -> list[str]:
    """A name for each run, no two the same where their folders are not: `labels`, and what tells seeds apart."""
    names = labels(runs)
    names = [f"{n}, seed {r.seed}" if names.count(n) > 1 else n for n, r in zip(names, runs, strict=True)]
    ends = path_ends([run.folder for run in runs])
    return [f"{n} ({end})" if names.count(n) > 1 else n for n, end in zip(names, ends, strict=True)]


def path_ends(folders: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as few as tell them apart.

    >>> path_ends([Path("runs/mnist/small-0"), Path("runs/cifar/small-0")])
    ['mnist/small-0', 'cifar/small-0']
    """
    paths = [folder.resolve() for folder in folders]
    ends: list[str] = []
    count = 0
    while len(set(ends)) < len(set(paths)):
        count += 1
        ends = [Path(*path.parts[-count:]).as_posix() for path in paths]
    return ends


def group_key(run: RunView) -> str:
    """The same for runs that differ in their seed alone."""
    if not run.recipe:
        return str(run.folder.resolve())
    return repr(sorted((k, _given(v)) for k, v in run.recipe.items() if k != "seed"))


def _given(value: Any) -> Any:
    """A part of a recipe without what is None, as recipes lack settings that there were not yet."""
    return {k: _given(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def _entry(recipe: dict[str, Any], group: str, name: str) -> Any:
    values = recipe.get(group)
    return values.get(name) if isinstance(values, dict) else None


def _read_metrics(path: Path) -> list[dict[str, float]]:
    if not path.is_file():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if any("epoch" not in row for row in rows):
        raise UserError(f"cannot read {path}: it has no column 'epoch'")
    return rows
