"""Dropout masks that do not depend on the process."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from epitomic.models.dropout import Dropout, key_dropout


def net() -> nn.Sequential:
    return nn.Sequential(Dropout(0.5), Dropout(0.5)).train()


@pytest.mark.parametrize("shape", [(64, 5), (64, 3, 4, 4)])
def test_any_split_of_the_batch_draws_the_same(shape: tuple[int, ...]) -> None:
    layer = net()[0]
    x = torch.ones(shape)
    key_dropout(layer, 0, 7, 0)
    whole = layer(x)
    parts = []
    for first, last in ((0, 10), (10, 16), (16, 47), (47, 64)):
        key_dropout(layer, 0, 7, first)
        parts.append(layer(x[first:last]))
    assert torch.equal(torch.cat(parts), whole)


def test_masks_differ_by_step_layer_and_seed_and_have_the_rate() -> None:
    model, x = net(), torch.ones(256, 40)
    masks = []
    for seed, step in ((0, 0), (0, 1), (1, 0)):
        key_dropout(model, seed, step, 0)
        masks += [model[0](x), model[1](x)]
    assert all(not torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])
    for mask in masks:
        assert set(mask.unique().tolist()) == {0.0, 2.0}
        assert 0.45 < (mask == 0).float().mean() < 0.55


def test_formats_draw_the_same() -> None:
    layer, x = net()[0], torch.randn(8, 3, 4, 4)
    key_dropout(layer, 0, 0, 0)
    assert torch.equal(layer(x), layer(x.to(memory_format=torch.channels_last)))


def test_plain_without_a_key_and_off_in_evaluation() -> None:
    layer, x = Dropout(0.5), torch.ones(100, 10)
    assert 0.3 < (layer(x) == 0).float().mean() < 0.7
    assert layer.eval()(x) is x
