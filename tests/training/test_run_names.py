"""Names of runs: the same for seeds of one network, different for everything else."""

from __future__ import annotations

import json

from epitomic.training.run_folder import open_run
from epitomic.training.run_names import labels
from tests.runs import MakeRun, make_run  # noqa: F401


def test_seeds_of_before_and_after_a_new_setting_are_one_network(
    make_run: MakeRun,  # noqa: F811
) -> None:
    before, after = make_run(name="one"), make_run(name="one", seed=1)
    for folder, change in (
        (before, lambda model: model.pop("whiten")),
        (after, lambda model: model.update(whiten=None)),
    ):
        recipe = json.loads((folder / "recipe.json").read_text())
        change(recipe["model"])
        (folder / "recipe.json").write_text(json.dumps(recipe))
    assert labels([open_run(before), open_run(after)]) == ["epitomic_small", "epitomic_small"]
