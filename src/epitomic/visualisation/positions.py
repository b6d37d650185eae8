"""Draws which positions of each epitome win."""

from __future__ import annotations

import numpy as np

from epitomic.analysis.positions import PositionUse
from epitomic.visualisation.style import ACCENT, DEAD, Picture, enlarge, tile


def positions_picture(use: PositionUse, columns: int = 16, cell: int | None = None) -> Picture:
    """Draws a D x D square for each epitome. Positions that win more often are darker; those that never win are red.

    Args:
        use: How often each position wins.
        columns: Largest number of epitomes in a row.
        cell: Pixels of a position; None makes an epitome about 16 pixels wide.
    """
    dh, dw = use.pool
    strength = (use.shares / use.shares.amax(1, keepdim=True).clamp(min=1e-9)).reshape(-1, dh, dw, 1).numpy()
    squares = np.concatenate([np.broadcast_to(ACCENT, (*strength.shape[:3], 3)), 0.06 + 0.94 * strength], axis=3)
    squares[use.dead.reshape(-1, dh, dw).numpy()] = (*DEAD, 1.0)
    factor = cell or max(2, 16 // dw)
    return tile([enlarge(square, factor) for square in squares], min(len(squares), columns), gap=4)
