"""Run folders made by hand: networks as they are initialised, and the files that a training leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from epitomic.data.small.sets import load_set
from epitomic.data.small.views import plain_batches
from epitomic.data.standardisation import Standardize
from epitomic.evaluation import score
from epitomic.models import create_model, from_pretrained, save_pretrained
from epitomic.support.options import to_dict
from epitomic.training.recipes import get_recipe
from epitomic.training.run_schema import COLUMNS

MakeRun = Callable[..., Path]


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Networks this small are run faster by one thread, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """Makes a run on the digits; ``epochs`` lines of metrics, weights if there is one, results if it is finished."""

    def make(
        model: str = "epitomic_small",
        *,
        seed: int = 0,
        epochs: int = 3,
        finished: bool = True,
        name: str = "run",
        whiten: bool = False,
    ) -> Path:
        folder = tmp_path_factory.mktemp(name) / f"{name}-{seed}"
        folder.mkdir()
        recipe = get_recipe("digits")
        recipe = replace(recipe, model=replace(recipe.model, name=model, width=0.25), seed=seed)
        (folder / "recipe.json").write_text(json.dumps(to_dict(recipe)))
        (folder / "run.json").write_text(json.dumps({"command": "epitomic train digits", "versions": {}}))
        lines = [",".join(COLUMNS)]
        lines += [f"{e},{20 * e},0.1,1.0,0.5,1.0,{0.5 / (1 + e) + 0.01 * seed},0.1,{e}" for e in range(epochs)]
        (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
        if epochs:
            images = load_set("digits")
            torch.manual_seed(seed)
            standardize = Standardize.of(images.train.images)
            chosen: dict[str, Any] = {"whiten": True} if whiten else {}  # not every network has it
            network = create_model(model, image_size=8, width=0.25, **chosen)
            if whiten:
                network.fit(standardize(images.train.images[:200].float() / 255))  # type: ignore[operator]
            extra = {"dataset": "digits", "classes": list(images.classes), "standardize": asdict(standardize)}
            save_pretrained(network, folder, **extra)
        if finished:
            test = score(from_pretrained(folder), plain_batches(images.test, standardize)).report(images.classes)
            results = {"test": test, "validation_error": 0.1, "best_epoch": 1, "epochs": epochs, "parameters": 12345}
            (folder / "results.json").write_text(json.dumps({**results, "wall_seconds": 9.0, "epoch_seconds": 3.0}))
        return folder

    return make


def make_weights(folder: Path, names: list[str]) -> Path:
    """Writes the weights of a small network that tells these classes."""
    model = create_model("epitomic_small", num_classes=len(names), image_size=8, width=0.25)
    standardize = {"mean": [0.3], "std": [0.4]}
    save_pretrained(model, folder, dataset="digits", classes=names, standardize=standardize)
    return folder


@pytest.fixture(scope="session")
def folder(make_run: MakeRun) -> Path:
    """A finished run of a small epitomic network."""
    return make_run()


def with_rate(folder: Path, rate: float) -> Path:
    """The run, as if it had been trained at another learning rate."""
    recipe = json.loads((folder / "recipe.json").read_text())
    recipe["optimizer"]["lr"] = rate
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder
