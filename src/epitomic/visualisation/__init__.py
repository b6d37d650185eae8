"""Pictures of networks and trainings. Each function returns a matplotlib figure or an array.

    from epitomic.visualisation import filters_figure, open_run
    filters_figure([open_run("runs/mnist")])

`epitomic.analysis` measures what the pictures show. ``pip install 'epitomic[plots]'`` installs matplotlib, which is
imported when something is drawn.
"""

from epitomic.training.run_folder import RunFolder, open_run, open_runs
from epitomic.visualisation.confusion import confusion_figure
from epitomic.visualisation.curves import curves_figure
from epitomic.visualisation.explain import explain_figure
from epitomic.visualisation.intervals import Row, intervals_figure
from epitomic.visualisation.mosaics import epitome_figure, filters_figure, mosaic
from epitomic.visualisation.patches import patches_figure
from epitomic.visualisation.robustness import robustness_figure
from epitomic.visualisation.style import DARK, LIGHT, save_figure

__all__ = [
    "DARK",
    "LIGHT",
    "Row",
    "RunFolder",
    "confusion_figure",
    "curves_figure",
    "epitome_figure",
    "explain_figure",
    "filters_figure",
    "intervals_figure",
    "mosaic",
    "open_run",
    "open_runs",
    "patches_figure",
    "robustness_figure",
    "save_figure",
]
