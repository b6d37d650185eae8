"""What a training costs on a machine, and how many steps fit into some seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """What a training costs on this machine, in seconds.

    Attributes:
        begin: The start of an epoch, until its first step is done.
        step: Each further step.
        end: The end of an epoch: validation and saving.
    """

    begin: float
    step: float
    end: float


def count_steps(seconds: float, pace: Pace, per_epoch: int) -> int:
    """Returns how many steps fit into some seconds, at least one; the last epoch may be cut.

    >>> count_steps(25.0, Pace(begin=1, step=1, end=2), 8)
    19
    """
    whole = pace.begin + (per_epoch - 1) * pace.step + pace.end
    epochs = max(0, int(seconds // whole))
    rest = seconds - epochs * whole - pace.begin - pace.end
    return max(1, epochs * per_epoch + (min(per_epoch, 1 + int(rest / pace.step)) if rest >= 0 else 0))
