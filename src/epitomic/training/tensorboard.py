"""Writes metrics for TensorBoard."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path

EVERY = 10  # steps between two points of a curve


class TensorBoard:
    """Writes metrics while it is entered. A resumed run replaces the steps that it repeats.

    A log that cannot be written any more, because the disk is full or the folder is gone, does not end the training.

    Args:
        folder: Folder of the log.
        step: First step that will be written.
        enabled: Whether to write at all.
    """

    def __init__(self, folder: Path, step: int, *, enabled: bool) -> None:
        self.folder, self.writer = folder, None
        if enabled:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(folder), purge_step=step or None)

    def __enter__(self) -> TensorBoard:
        self._tell = threading.excepthook
        threading.excepthook = self._hear
        return self

    def _hear(self, args: threading.ExceptHookArgs) -> None:
        """Hides the trace of a writer thread that cannot write: `end_epoch` says so in one line."""
        if not (type(args.thread).__name__ == "_AsyncWriterThread" and issubclass(args.exc_type, OSError)):
            self._tell(args)

    def __exit__(self, *_: object) -> None:
        if self.writer:
            with contextlib.suppress(OSError):
                self.writer.close()
        threading.excepthook = self._tell

    def end_step(self, step: int, **figures: float) -> None:
        """Writes the figures of every tenth step."""
        if step % EVERY == 0:
            self.end_epoch(step, **figures)

    def end_epoch(self, step: int, **figures: float) -> None:
        """Writes the figures of an epoch, whose last step is ``step``."""
        if self.writer:
            try:
                for name, value in figures.items():
                    self.writer.add_scalar(name, value, step)
            except OSError as error:
                self.writer = None
                if self.folder.is_dir():  # if it is gone, the next checkpoint says so
                    print(f"epitomic: {self.folder} cannot be written any more: {error.strerror}", file=sys.stderr)
