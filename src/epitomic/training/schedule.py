"""The learning rate of each step."""

from __future__ import annotations

import math
from typing import Any

from epitomic.support.schema import COUNT, NUMBER, Entry, Schema, check_schema, or_none
from epitomic.training.recipe import Schedule

SCHEMA: Schema = {
    "drops": COUNT,
    "bad_epochs": COUNT,
    "best": Entry(or_none(NUMBER.fits), "a number or null"),
}


class LearningRate:
    """The learning rate as a function of the step; ``plateau`` depends on the validation errors, too.

    Args:
        config: The schedule.
        base: Learning rate that the schedule scales.
        steps_per_epoch: Number of steps in an epoch.
        epochs: Number of epochs in the run.
        steps: Number of steps in the run (default: those of all epochs).
    """

    def __init__(
        self, config: Schedule, base: float, steps_per_epoch: int, epochs: int, steps: int | None = None
    ) -> None:
        self.config, self.base = config, base
        self.warmup = config.warmup * steps_per_epoch
        self.total = min(epochs * steps_per_epoch, steps or epochs * steps_per_epoch)
        self.drops = 0  # how often a plateau has lowered the rate
        self.best = math.inf  # lowest validation error
        self.bad_epochs = 0  # epochs since the last improvement or drop

    def at(self, step: int) -> float:
        """Returns the learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.base * (step + 1) / (self.warmup + 1)
        done = (step - self.warmup) / max(1, self.total - self.warmup)  # 0 to 1
        if self.config.name == "linear":
            return self.base * (1 - done)
        if self.config.name == "cosine":
            return self.base * (1 + math.cos(math.pi * done)) / 2
        return self.base * self.config.factor**self.drops

    def end_epoch(self, error: float) -> None:
        """Notes the validation error of an epoch."""
        if error < self.best:
            self.best, self.bad_epochs = error, 0
            return
        self.bad_epochs += 1
        if self.bad_epochs >= self.config.patience:
            self.drops, self.bad_epochs = self.drops + 1, 0

    @property
    def finished(self) -> bool:
        """Whether a plateau has been reached after the last drop that is allowed."""
        return self.config.name == "plateau" and self.drops > self.config.drops

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint must hold."""
        best = None if math.isinf(self.best) else self.best
        return {"drops": self.drops, "best": best, "bad_epochs": self.bad_epochs}

    def restore(self, state: Any, where: str) -> None:
        """Continues from what `state` returned, which the file ``where`` holds."""
        check_schema({"rate": state}, {"rate": SCHEMA}, f"{where} is unsound")
        self.drops, self.bad_epochs = int(state["drops"]), int(state["bad_epochs"])
        self.best = math.inf if state["best"] is None else float(state["best"])
