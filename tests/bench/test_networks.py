"""Timings of whole networks, their table and their file."""

import csv
from pathlib import Path

import pytest

from epitomic.bench.networks import NetworkPair, run_networks
from epitomic.bench.table import network_table, save_networks
from epitomic.support.console import Progress


def test_networks(tmp_path: Path) -> None:
    pair = NetworkPair("epitomic_small", "maxpool_small", channels=1, size=8, batch=4, classes=3)
    (result,) = run_networks([pair], repetitions=2, progress=Progress(2))
    assert len(result.share.values) == 2
    assert "epitomic_small  maxpool_small  1 x 8 px, batch 4" in network_table([result])
    save_networks([result], tmp_path / "networks.csv", {"cpu": "an abacus"})
    with (tmp_path / "networks.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["cpu"] == "an abacus"
    assert float(row["share"]) == pytest.approx(result.share.median, rel=1e-3)


def test_a_network_of_torch_layers() -> None:
    pair = NetworkPair("maxpool_small", "maxpool_small@torch", channels=1, size=8, batch=4, classes=3)
    (result,) = run_networks([pair], repetitions=1, progress=Progress(1))
    assert "maxpool_small  maxpool_small@torch" in network_table([result])
