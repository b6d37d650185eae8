"""The patches that excite a unit most, against a search by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from epitomic.analysis.patches import exciting_patches
from epitomic.support.errors import UserError
from epitomic.training.run_folder import open_run


def test_patches_that_excite_most_are_found(folder: Path) -> None:
    run = open_run(folder)
    images = run.test.images[:60]
    found = exciting_patches(run, images, "1", units=4, count=5)
    layer = run.model.get_submodule("features.layer1.conv")
    with torch.no_grad():
        best = layer(run.to_input(images)).flatten(2).amax(2)  # (N, K)
    for unit, row, chosen in zip(found.units.tolist(), found.responses, found.images, strict=True):
        expected = best[:, unit].topk(5)
        torch.testing.assert_close(row, expected.values)
        assert set(chosen.tolist()) <= set(range(60))
        assert len(set(chosen.tolist())) == 5
    assert found.patches.shape == (4, 5, 1, 5, 5)
    with pytest.raises(UserError, match="--layer must be from 1 to 3"):
        exciting_patches(run, images, "4")
    with pytest.raises(UserError, match=r"did you mean 'features\.layer2"):
        exciting_patches(run, images, "features.layer2.con")
