"""Fits a training into the time that it may take: measures this machine, then chooses image size and steps.

The choice is written into the recipe before the training begins, so a run that is resumed still ends in the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from epitomic.data.feed import Feed
from epitomic.data.own.images import OwnSet
from epitomic.models import create_model
from epitomic.models.dropout import key_dropout
from epitomic.support.clock import elapsed
from epitomic.support.errors import UserError
from epitomic.training.own import fitting_crop, with_crop
from epitomic.training.pace import count_steps
from epitomic.training.recipe import Recipe
from epitomic.training.setup import Settings, open_feed
from epitomic.training.trainer import Trainer

CROPS = (224, 192, 160, 128, 112, 96, 80, 64, 48, 32)  # pixels, the first choice first
ENOUGH, FEWEST = 30, 10  # epochs that a larger size must leave; epochs below which the smallest sizes are tried
SMALLEST = 64  # pixels; less only for `FEWEST` epochs
TRIED = 64  # pixels of the images on which a network is timed before its size is chosen
SECONDS = 3.0  # how long steps are measured
TEN_CROPS = 11  # views of a test image: ten crops, and the centre again
PASSES = 29  # how often the report shows an image that it looks at to the network
SHARE = 0.12  # of the budget that ten crops, or the report, may take
FEWEST_SEEN, MOST_SEEN = 40, 500  # test images that the report looks at
FIXED = 8.0  # seconds for the report's pictures, loading matplotlib, and the end of the process


@dataclass(frozen=True)
class Fitted:
    """The training that fits into the time.

    Attributes:
        recipe: The recipe, with size and steps.
        feed: Its images, which are open.
        seen: Number of test images that the report may look at.
    """

    recipe: Recipe
    feed: Feed
    seen: int

    @property
    def is_short(self) -> bool:
        """Whether too few epochs fit into the budget to train a good network."""
        return self.recipe.epochs < FEWEST


def fit_budget(
    recipe: Recipe,
    images: OwnSet,
    settings: Settings,
    minutes: float,
    *,
    fixed_size: bool = False,
    say: Callable[[str], object] = str,
) -> Fitted:
    """Chooses size and steps so that the command ends ``minutes`` after its start, test and report included.

    Args:
        recipe: All other settings.
        images: The images.
        settings: How to train.
        minutes: The budget.
        fixed_size: Whether to keep the recipe's size.
        say: Called with each thing that is measured.
    """
    budget = 60 * minutes
    say("timing the network")
    step, view = _try_network(recipe)
    if recipe.data.side is None and not fixed_size:
        recipe = with_crop(recipe, _choose_crop(recipe, images, settings, budget, step, view))
    began = elapsed()
    count = len(images.parts["test"])
    view *= ((recipe.data.side or recipe.photographs.crop) / (recipe.data.side or TRIED)) ** 2
    if recipe.data.side is None and recipe.data.crops is None and count * TEN_CROPS * view > SHARE * budget:
        recipe = replace(recipe, data=replace(recipe.data, crops=1))
    say(f"reading {len(images.parts['train']) + len(images.parts['val']):,} images")
    feed = open_feed(recipe, settings)
    reading = (elapsed() - began) * count / max(1, len(images.parts["train"]) + len(images.parts["val"]))
    say("timing the training")
    pace = Trainer.rehearsal(recipe, settings, feed, SECONDS)
    seen = _seen(budget, view)
    after = _views(recipe, images, seen) * view + 2 * reading + FIXED if settings.test else 1.0
    steps = count_steps(budget - elapsed() - after, pace, len(feed))
    epochs = -(-steps // len(feed))
    warmup = min(float(recipe.schedule.warmup), epochs / 10)
    recipe = replace(recipe, epochs=epochs, steps=steps, schedule=replace(recipe.schedule, warmup=warmup))
    return Fitted(recipe, feed, seen)


def _seen(budget: float, view: float) -> int:
    """Returns how many test images the report may look at."""
    return max(FEWEST_SEEN, min(MOST_SEEN, int(SHARE * budget / (PASSES * view))))


def _views(recipe: Recipe, images: OwnSet, seen: int) -> int:
    """Returns how many views of test images the test and the report show to the network."""
    count, one = len(images.parts["test"]), recipe.data.side is not None or recipe.data.crops == 1
    return count * (1 if one else TEN_CROPS) + PASSES * min(count, seen)


def _choose_crop(recipe: Recipe, images: OwnSet, settings: Settings, budget: float, step: float, view: float) -> int:
    """Returns the largest crop that leaves enough epochs; times grow with the number of pixels."""
    train, val = (len(images.parts[split]) for split in ("train", "val"))
    largest = fitting_crop(images.short_side)
    crops = [crop for crop in CROPS if crop <= largest]
    epochs = {}
    for crop in crops:
        scale = (crop / TRIED) ** 2
        tested = len(images.parts["test"]) * TEN_CROPS * scale * view
        after = min(tested, SHARE * budget) + SHARE * budget / 2 + FIXED if settings.test else 1.0
        left = budget - elapsed() - 2 * SECONDS - after
        epochs[crop] = left / (scale * (train * step / recipe.batch_size + val * view) + 0.5)
    usual = [crop for crop in crops if crop >= SMALLEST]
    found = next((crop for crop in usual if epochs[crop] >= ENOUGH), usual[-1])
    if epochs[found] >= FEWEST:
        return found
    return next((crop for crop in crops if crop < found and epochs[crop] >= FEWEST), crops[-1])


def _try_network(recipe: Recipe) -> tuple[float, float]:
    """Returns the seconds of a step, and of one view without learning, on random images of 64 pixels or less."""
    side, channels = recipe.data.side or TRIED, recipe.data.channels or 3
    model = create_model(
        recipe.model.name, num_classes=10, in_channels=channels, image_size=side, **recipe.model.arguments()
    )
    x = torch.randn(recipe.batch_size, channels, side, side).contiguous(memory_format=torch.channels_last)

    def learn() -> None:
        key_dropout(model, 0, 0, 0)
        F.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long)).backward()

    step = _median(learn)
    if recipe.start.freeze:
        step /= 3  # no gradient passes the frozen layers
    model.eval()
    with torch.no_grad():
        return step, _median(lambda: model(x)) / len(x)


def _median(function: Callable[[], object]) -> float:
    """Returns the median time of a few calls in seconds, after one to warm up."""
    function()
    times: list[float] = []
    while len(times) < 3 or sum(times) < SECONDS / 10:
        before = time.monotonic()
        function()
        times.append(time.monotonic() - before)
    return sorted(times)[len(times) // 2]


def check_minutes(minutes: float) -> float:
    """Returns the minutes, or raises an error unless a training can take so long."""
    if not 0 < minutes < float("inf"):
        raise UserError(f"--minutes must be above 0 and finite, got {minutes:g}")
    return minutes
