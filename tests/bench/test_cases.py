"""The layers that are timed: equal outputs on both sides."""

import pytest
import torch

from epitomic.bench.cases import CASES, FORMATS, FUSED, PAIR, Case, Contestant, enter

SMALL = Case("small", 4, 6, 3, 2, 2, size=9, batch=2)


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_both_sides_have_equal_outputs(case: Case) -> None:
    one = case.scaled(batch=1)
    for layout in FORMATS:
        entries = {what: enter(one, Contestant(what, layout)) for what in (PAIR, FUSED, "auto")}
        for entry in entries.values():
            assert entry.forward().shape == entry.dy.shape == (1, case.out_channels, *case.output)
        torch.testing.assert_close(entries[PAIR].forward(), entries[FUSED].forward(), rtol=1e-3, atol=1e-4)


def test_the_compiled_pair_is_the_pair() -> None:
    pair, compiled = (enter(SMALL, Contestant(PAIR, "contiguous", compiled=c)) for c in (False, True))
    torch.testing.assert_close(pair.forward(), compiled.forward())


def test_flops_are_those_of_the_paper_layers() -> None:
    assert CASES["paper layer 2"].winograd_flops() == 2 * 64 * 16 * 17 * 17 * 96 * 192
    assert CASES["paper layer 1"].winograd_flops() == 2 * 36 * 16 * 54 * 54 * 12 * 96


def test_training_needs_no_more_gradients_than_a_network_would() -> None:
    assert len(enter(CASES["paper layer 1"].scaled(batch=1), Contestant("auto", "contiguous")).inputs) == 2
    assert len(enter(SMALL, Contestant("auto", "contiguous")).inputs) == 3
