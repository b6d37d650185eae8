"""Writes metrics for TensorBoard."""

from __future__ import annotations

from pathlib import Path

EVERY = 10  # steps between two points of a curve


class TensorBoard:
    """Writes metrics while it is entered. A resumed run replaces the steps that it repeats.

    Args:
        folder: Folder of the log.
        step: First step that will be written.
        enabled: Whether to write at all.
    """

    def __init__(self, folder: Path, step: int, *, enabled: bool) -> None:
        self.writer = None
        if enabled:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(folder), purge_step=step or None)

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        if self.writer:
            self.writer.close()

    def end_step(self, step: int, **figures: float) -> None:
        """Writes the figures of a step, if it is one of every ten."""
        if step % EVERY == 0:
            self.end_epoch(step, **figures)

    def end_epoch(self, step: int, **figures: float) -> None:
        """Writes the figures of an epoch, whose last step is ``step``."""
        if self.writer:
            for name, value in figures.items():
                self.writer.add_scalar(name, value, step)
