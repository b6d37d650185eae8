"""What more images would bring: the test error after training on a quarter and on a half of the images."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from epitomic.analysis.error_rates import wilson
from epitomic.data.photographs.loading import default_workers
from epitomic.support.errors import UserError
from epitomic.training.experiment import train
from epitomic.training.recipe import Recipe
from epitomic.training.run_folder import RunFolder
from epitomic.training.setup import Settings

SHARES = {"a quarter": 0.25, "a half": 0.5}


@dataclass(frozen=True)
class Point:
    """One point of a learning curve.

    Attributes:
        share: Share of the training images in words.
        error: Test error.
        low: Lower end of its 95 % interval.
        high: Upper end of its 95 % interval.
    """

    share: str
    error: float
    low: float
    high: float


def share_recipe(recipe: Recipe, share: float) -> Recipe:
    """Returns the recipe for a share of the images, with more epochs, so that the number of steps stays the same.

    Times that are counted in epochs become longer, too. So the runs differ in their images alone.
    """
    schedule = replace(
        recipe.schedule, warmup=recipe.schedule.warmup / share, patience=round(recipe.schedule.patience / share)
    )
    data = replace(recipe.data, share=share)
    return replace(recipe, data=data, schedule=schedule, epochs=round(recipe.epochs / share))


def train_learning_curve(run: RunFolder, say: Callable[[str], object] = str) -> None:
    """Trains the run's recipe on each share, in folders inside the run's. Finished ones are kept, others resumed.

    Args:
        run: A finished and tested run.
        say: Called with the share before each training.

    Raises:
        UserError: If the run is not finished, was not tested, or is itself on a share of the images.
    """
    if not run.recipe or not run.finished or "test" not in (run.results or {}):
        raise UserError(f"--learning-curve needs a finished and tested run, and {run.folder} is none")
    recipe = run.read_recipe()
    if recipe.data.share is not None:
        raise UserError(
            f"--learning-curve needs a run on all images: {run.folder} has --data.share {recipe.data.share}"
        )
    settings = Settings(data_dir=run.data_dir, workers=default_workers())
    for words, share in SHARES.items():
        say(f"{run.name}: {words} of the training images")
        part = run.share(share)
        with nullcontext() if part.finished else part.writing():
            train(share_recipe(recipe, share), part, settings)


def read_learning_curve(run: RunFolder) -> list[Point]:
    """Returns the error on each share that was trained on, and on all images; empty if there is no such training."""
    parts = [(words, run.share(share).results) for words, share in SHARES.items()]
    found = [(words, results["test"]) for words, results in parts if results and "test" in results]
    if not found or "test" not in (run.results or {}):
        return []
    return [_point(words, test) for words, test in (*found, ("all", (run.results or {})["test"]))]


def _point(share: str, test: dict[str, Any]) -> Point:
    return Point(share, test["error"], *wilson(test["errors"], test["images"]))
