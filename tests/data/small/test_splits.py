"""A held-out part is fixed, and has the same share of every class."""

from __future__ import annotations

import pytest
import torch

from epitomic.data.small.splits import Split, hold_out
from epitomic.support.errors import UserError


def test_hold_out_is_stratified_fixed_and_disjoint() -> None:
    labels = torch.arange(1000) % 10
    split = Split(torch.arange(1000).reshape(-1, 1, 1, 1), labels)
    rest, held = hold_out(split, 100)
    assert torch.bincount(held.labels).tolist() == [10] * 10
    assert sorted([*rest.images.flatten().tolist(), *held.images.flatten().tolist()]) == list(range(1000))
    assert torch.equal(hold_out(split, 100)[1].images, held.images)
    for count in (0, 1000):
        with pytest.raises(UserError, match="validation set"):
            hold_out(split, count)
