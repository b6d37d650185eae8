"""What the terminal shows of a training."""

from __future__ import annotations

import sys

from epitomic.support.console import Progress, percent


class TrainingProgress(Progress):
    """Shows epoch, loss, validation error, speed and time left.

    Args:
        epochs: Number of epochs in the whole run.
        steps: Number of steps in the whole run.
        done: Number of steps that earlier sessions did.
        batch_size: Number of images in a step.
        quiet: Show nothing.
    """

    def __init__(self, epochs: int, steps: int, done: int, batch_size: int, *, quiet: bool = False) -> None:
        super().__init__(steps, done=done, unit="images", scale=batch_size, quiet=quiet, stream=sys.stdout)
        self.epochs, self.steps = epochs, steps
        self.validation = ""

    def end_step(self, epoch: int, step: int, loss: float) -> None:
        """Shows that ``step`` steps are done; ``loss`` is the mean of the epoch so far."""
        text = f"epoch {epoch + 1}/{self.epochs}  step {step}/{self.steps}  loss {loss:.4f}{self.validation}"
        self.update(text, step)

    def end_epoch(self, epoch: int, loss: float, error: float, best: bool) -> None:
        """Writes a line on an epoch; a star marks the best one so far."""
        self.validation = f"  validation error {percent(error)}"
        mark = "*" if best else " "
        self.say(f"epoch {epoch + 1}/{self.epochs}  loss {loss:.4f}{self.validation} {mark}  {self.pace()}")
