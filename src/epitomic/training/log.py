"""TensorBoard logs."""

from __future__ import annotations

from pathlib import Path

EVERY = 10  # steps


class TensorBoard:
    """Writes the metrics for TensorBoard; a resumed run replaces what an earlier one wrote of the same steps.

    Args:
        folder: Where to.
        step: The first step that will be written.
        enabled: False: does nothing.
    """

    def __init__(self, folder: Path, step: int, *, enabled: bool) -> None:
        self.writer = None
        if enabled:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(folder), purge_step=step or None)

    def step(self, step: int, **figures: float) -> None:
        """Figures of a step, now and then."""
        if step % EVERY == 0:
            self.epoch(step, **figures)

    def epoch(self, step: int, **figures: float) -> None:
        """Figures of an epoch."""
        if self.writer:
            for name, value in figures.items():
                self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes what is left."""
        if self.writer:
            self.writer.close()
