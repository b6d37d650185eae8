"""Position statistics against counts made by the slow reference."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from epitomic import EpitomicConv2d
from epitomic.analysis.positions import position_use
from epitomic.ops.reference import epitomic_conv2d_reference
from epitomic.visualisation.positions import positions_picture


def test_counts_are_those_of_the_reference() -> None:
    torch.manual_seed(0)
    one = EpitomicConv2d(3, 8, 4, pool_size=(2, 3), padding=1, dtype=torch.float64)
    two = EpitomicConv2d(8, 12, 2, pool_size=2, epitome_size=5, normalize=True, stride=1, dtype=torch.float64)
    model = nn.Sequential(one, nn.ReLU(), two).train()
    x = torch.randn(7, 3, 15, 17, dtype=torch.float64)
    found = position_use(model, x.split(3))
    assert [use.name for use in found] == ["0", "2"]
    given = x
    for layer, use in zip((one, two), found, strict=True):
        options = {"normalize": layer.normalize, "eps": layer.eps}
        with torch.no_grad():
            y, positions = epitomic_conv2d_reference(given, layer.weight, layer.bias, layer.geometry, **options)  # type: ignore[arg-type]
        counts = [[0] * use.counts.shape[1] for _ in range(layer.out_channels)]
        for sample in positions.tolist():
            for channel, rows in enumerate(sample):
                for row in rows:
                    for p in row:
                        counts[channel][p] += 1
        assert use.counts.tolist() == counts
        given = y.relu()
    assert model.training
    assert "forward" not in one.__dict__


def test_a_position_that_cannot_win_is_dead_and_red() -> None:
    layer = EpitomicConv2d(1, 2, 1, pool_size=2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[[[1.0, 2.0], [3.0, 0.5]]], [[[1.0, -1.0], [-2.0, -3.0]]]]))
    x = torch.cat([torch.ones(1, 1, 4, 4), -torch.ones(1, 1, 4, 4)])
    (use,) = position_use(nn.Sequential(layer), [x])
    assert use.counts.tolist() == [[0, 0, 4, 4], [4, 0, 0, 4]]
    assert use.dead.sum() == 4
    torch.testing.assert_close(use.overall, torch.tensor([[0.25, 0.0], [0.25, 0.5]]))
    picture = positions_picture(use, columns=2, cell=1)
    assert picture.shape == (2, 8, 4)
    red = (picture[..., 0] > 0.8) & (picture[..., 3] == 1)
    assert np.array_equal(red[:, :2], [[True, True], [False, False]])
