"""The benchmark: equal outputs on both sides, statistics, table and files."""

import csv
from pathlib import Path

import pytest
import torch

from epitomic.bench.contest import CASES, FORMATS, PAIR, Case, Contestant, enter
from epitomic.bench.memory import peak_memory
from epitomic.bench.networks import Match, network_table, run_networks, save_networks
from epitomic.bench.run import Progress
from epitomic.bench.timing import Sample, interleaved
from epitomic.cli import main

SMALL = Case("small", 4, 6, 3, 2, 2, size=9, batch=2)


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_both_sides_have_equal_outputs(case: Case) -> None:
    one = case.scaled(batch=1)
    for what in (PAIR, "auto"):
        for layout in FORMATS:
            entry = enter(one, Contestant(what, layout))
            assert entry.forward().shape == entry.dy.shape == (1, case.out_channels, *case.output)


def test_flops_of_the_design_note() -> None:
    assert CASES["paper layer 2"].winograd_flops() == 2 * 64 * 16 * 17 * 17 * 96 * 192
    assert CASES["paper layer 1"].winograd_flops() == 2 * 36 * 16 * 54 * 54 * 12 * 96


def test_samples() -> None:
    sample = Sample((1.0, 2.0, 3.0, 4.0, 5.0))
    assert (sample.median, sample.spread) == (3.0, (2.0, 4.0))
    assert (sample / sample).values == (1.0,) * 5
    assert str(sample) == "3.00 (2.00-4.00)"


def test_interleaving() -> None:
    order: list[str] = []
    functions = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    (*_, last) = interleaved(functions, repetitions=2)
    assert order == ["a", "b"] * 3  # the first round warms up
    assert len(last["a"].values) == 2


def test_training_needs_no_more_gradients_than_a_network_would() -> None:
    assert len(enter(CASES["paper layer 1"].scaled(batch=1), Contestant("auto", "contiguous")).inputs) == 2
    assert len(enter(SMALL, Contestant("auto", "contiguous")).inputs) == 3


def test_extra_memory_does_not_grow_with_the_responses() -> None:
    """Twice the images: the pair holds twice the responses, we hold the positions and the same workspace."""
    layer = Case("", 64, 256, 3, 3, 3, size=32, batch=16)
    ours, more = (peak_memory(layer.scaled(batch=n), Contestant("winograd", "channels_last")) for n in (16, 32))
    if ours is None or more is None:
        pytest.skip("the system does not tell a process its peak memory")
    responses = 4 * 16 * 256 * 30 * 30  # bytes of what 16 more images would add at full resolution
    assert more - ours < responses / 8


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    assert main(["bench", "--cases", "4x4, pool 2", "--repetitions", "2", "--no-memory", "--out", str(tmp_path)]) == 0
    assert torch.get_num_threads() == threads
    out = capsys.readouterr().out
    assert "speed-up (quartiles)" in out
    with (tmp_path / "bench.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["mode"], r["n"]) for r in rows] == [("forward", "2"), ("training", "2")]
    assert all(float(r["speedup"]) > 0 and r["torch"] == torch.__version__ for r in rows)


def test_networks(tmp_path: Path) -> None:
    match = Match("epitomic_small", "maxpool_small", channels=1, size=8, batch=4, classes=3)
    (result,) = run_networks([match], repetitions=2, progress=Progress())
    assert len(result.share.values) == 2
    assert "epitomic_small  maxpool_small   1 x 8 px, batch 4" in network_table([result])
    with save_networks([result], tmp_path, {"cpu": "an abacus"}).open() as file:
        (row,) = csv.DictReader(file)
    assert row["cpu"] == "an abacus"
    assert float(row["share"]) == pytest.approx(result.share.median, rel=1e-3)


def test_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--cases", "paper layer 7"]) == 2
    assert "unknown case 'paper layer 7': did you mean 'paper layer" in capsys.readouterr().err
    assert main(["bench", "--algorithms", "winogad"]) == 2
    assert "did you mean 'winograd'?" in capsys.readouterr().err
    assert main(["bench", "--networks", "epitomic_smal"]) == 2
    assert "unknown network 'epitomic_smal': did you mean 'epitomic_small'" in capsys.readouterr().err
    assert main(["bnech"]) == 2
    assert "unknown command 'bnech': did you mean 'bench'?" in capsys.readouterr().err
