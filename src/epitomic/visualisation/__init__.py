"""Pictures of networks and trainings. Each function returns a matplotlib figure or arrays.

    from epitomic.visualisation import open_run, filters_figure
    filters_figure([open_run("runs/mnist")])

matplotlib comes with ``pip install 'epitomic[plots]'`` and is imported where something is drawn.
"""

from epitomic.visualisation.curves import curves, curves_figure, epoch_seconds
from epitomic.visualisation.explain import explain, explain_figure, read_image
from epitomic.visualisation.matches import Match, match_layers
from epitomic.visualisation.mistakes import confusion_figure, worst_mistakes
from epitomic.visualisation.mosaics import epitome_figure, filters_figure, first_epitomes, mosaic
from epitomic.visualisation.patches import exciting_patches, patches_figure
from epitomic.visualisation.positions import PositionUse, position_use
from epitomic.visualisation.reconstruction import Reconstruction, reconstruct, reconstruction_errors
from epitomic.visualisation.robustness import measure_shifts, robustness_figure
from epitomic.visualisation.runs import RunView, open_run, open_runs
from epitomic.visualisation.style import DARK, LIGHT, save_figure

__all__ = [
    "DARK",
    "LIGHT",
    "Match",
    "PositionUse",
    "Reconstruction",
    "RunView",
    "confusion_figure",
    "curves",
    "curves_figure",
    "epitome_figure",
    "epoch_seconds",
    "exciting_patches",
    "explain",
    "explain_figure",
    "filters_figure",
    "first_epitomes",
    "match_layers",
    "measure_shifts",
    "mosaic",
    "open_run",
    "open_runs",
    "patches_figure",
    "position_use",
    "read_image",
    "reconstruct",
    "reconstruction_errors",
    "robustness_figure",
    "save_figure",
    "worst_mistakes",
]
