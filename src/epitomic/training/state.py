"""What a training counts: steps, sums over images, and seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from epitomic.support.errors import UserError
from epitomic.support.schema import COUNT, NUMBER, SECONDS, SHARE, Entry, Schema, check_schema, or_none
from epitomic.training.run_schema import COLUMNS, check_row


class Sums(NamedTuple):
    """Sums over the images of a step."""

    loss: float
    errors: int
    images: int


@dataclass
class State:
    """How far a training is. A checkpoint holds this, the tensors and the state of the learning rate."""

    epoch: int = 0  # number of finished epochs
    batch: int = 0  # number of finished batches of the current epoch
    images: int = 0  # number of images of the current epoch that were trained on
    bad: int = 0  # number of images of the current epoch that could not be read
    loss: float = 0.0  # sum of the loss over the images of the current epoch
    errors: float = 0.0  # number of images of the current epoch that were classified wrongly
    best_error: float | None = None  # validation error of the epoch whose weights are kept
    best_loss: float | None = None  # validation loss of that epoch; it decides between epochs of the same error
    best_epoch: int | None = None  # number of that epoch, counted from 0
    seconds: float = 0.0  # wall time of the training so far, over all sessions
    cpu_seconds: float = 0.0  # processor time of this process on all cores so far, over all sessions
    rows: list[list[Any]] = field(default_factory=list)  # metrics of each epoch so far

    @classmethod
    def read(cls, values: Any, where: str, *, epochs: int, batches: int) -> State:
        """Returns the state that a checkpoint holds as JSON.

        Args:
            values: The state as JSON.
            where: Path of the checkpoint, for errors.
            epochs: Number of epochs in the run.
            batches: Number of batches in an epoch.

        Raises:
            UserError: If it cannot be a state of this run.
        """
        if not isinstance(values, dict) or values.keys() != {one.name for one in fields(cls)}:
            raise UserError(f"{where} is unsound: its state must have {', '.join(one.name for one in fields(cls))}")
        check_schema(values, SCHEMA, f"{where} is unsound: state")
        state = cls(**values)
        if state.epoch > epochs or state.batch > (batches if state.epoch < epochs else 0):
            far = f"it is at epoch {state.epoch}, batch {state.batch}"
            raise UserError(f"{where} is unsound: {far} of a run of {epochs} epochs of {batches} batches")
        if len(state.rows) != state.epoch:
            raise UserError(f"{where} is unsound: it has {len(state.rows)} rows of metrics for {state.epoch} epochs")
        for epoch, row in enumerate(state.rows):
            if len(row) != len(COLUMNS):
                raise UserError(f"{where} is unsound: row {epoch} has {len(row)} values for {len(COLUMNS)} columns")
            check_row(dict(zip(COLUMNS, row, strict=True)), epoch, f"{where} is unsound: row {epoch}")
        best = (state.best_epoch, state.best_error, state.best_loss)
        if (None in best) != (state.epoch == 0) or (state.best_epoch or 0) > max(0, state.epoch - 1):
            raise UserError(f"{where} is unsound: its best epoch cannot be {state.best_epoch} of {state.epoch}")
        return state

    @property
    def mean_loss(self) -> float:
        """Mean loss of the current epoch."""
        return self.loss / max(1, self.images)

    @property
    def mean_error(self) -> float:
        """Share of the current epoch's images that were classified wrongly."""
        return self.errors / max(1, self.images)

    def end_step(self, sums: Sums, expected: int) -> None:
        """Counts a step that should have had ``expected`` images."""
        self.batch += 1
        self.images += sums.images
        self.bad += expected - sums.images
        self.loss += sums.loss
        self.errors += sums.errors

    def is_better(self, error: float, loss: float) -> bool:
        """Whether these validation figures are the best so far."""
        return self.best_error is None or (error, loss) < (self.best_error, self.best_loss)

    def end_epoch(self) -> None:
        """Turns to the next epoch."""
        self.epoch, self.batch, self.images, self.bad = self.epoch + 1, 0, 0, 0
        self.loss, self.errors = 0.0, 0.0


SCHEMA: Schema = {
    **dict.fromkeys(("epoch", "batch", "images", "bad"), COUNT),
    **dict.fromkeys(("loss", "errors"), NUMBER),
    **dict.fromkeys(("seconds", "cpu_seconds"), SECONDS),
    "best_error": Entry(or_none(SHARE.fits), "a number from 0 to 1 or null"),
    "best_loss": Entry(or_none(NUMBER.fits), "a number or null"),
    "best_epoch": Entry(or_none(COUNT.fits), "a whole number or null"),
    "rows": Entry(lambda value: isinstance(value, list) and all(isinstance(row, list) for row in value), "lists"),
}


class Clock:
    """Wall and processor time, continued from an earlier session.

    Args:
        seconds: Wall time of earlier sessions.
        cpu_seconds: Processor time of earlier sessions.
    """

    def __init__(self, seconds: float, cpu_seconds: float) -> None:
        self.began, self.cpu_began = time.monotonic() - seconds, time.process_time() - cpu_seconds

    def read(self) -> tuple[float, float]:
        """Returns wall time and processor time so far, in seconds."""
        return time.monotonic() - self.began, time.process_time() - self.cpu_began
