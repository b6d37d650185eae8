"""Names of images in memory that were read from files of the user's own."""

from __future__ import annotations

from dataclasses import replace

from epitomic.data.own.images import open_own
from epitomic.training.recipe import OWN
from epitomic.training.run_folder import RunFolder


def own_names(run: RunFolder) -> dict[str, list[str]]:
    """Returns the paths of a run's own images by split (train, val and test); empty if it has another image set."""
    if not run.recipe:
        return {}
    data = run.read_recipe().data
    if data.name != OWN:
        return {}
    images = open_own(replace(data.place, source=run.data_dir or data.place.source))
    return {split: [images.blobs.name(i) for i in numbers] for split, numbers in images.parts.items()}
