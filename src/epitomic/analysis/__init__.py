"""Measurements of trained networks: numbers, no pictures.

>>> from epitomic.analysis import measure_shifts
>>> from epitomic.training.run_folder import open_run
>>> measure_shifts(open_run("runs/mnist"), maximum=2)  # doctest: +SKIP
"""

from epitomic.analysis.convergence import Curve, curves, epoch_seconds
from epitomic.analysis.explanation import Explanation, explain, read_image
from epitomic.analysis.first_layer import FirstLayer, read_first_layer
from epitomic.analysis.layer_times import LayerTime, time_layers
from epitomic.analysis.matches import Match, match_layers
from epitomic.analysis.mistakes import Mistake, surest_mistakes
from epitomic.analysis.patches import ExcitingPatches, exciting_patches
from epitomic.analysis.positions import PositionUse, position_use
from epitomic.analysis.reconstruction import Reconstruction, reconstruct, reconstruction_errors
from epitomic.analysis.robustness import ShiftRow, measure_shifts

__all__ = [
    "Curve",
    "ExcitingPatches",
    "Explanation",
    "FirstLayer",
    "LayerTime",
    "Match",
    "Mistake",
    "PositionUse",
    "Reconstruction",
    "ShiftRow",
    "curves",
    "epoch_seconds",
    "exciting_patches",
    "explain",
    "match_layers",
    "measure_shifts",
    "position_use",
    "read_first_layer",
    "read_image",
    "reconstruct",
    "reconstruction_errors",
    "surest_mistakes",
    "time_layers",
]
