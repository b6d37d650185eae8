"""The tables of transfer: planned, measured piece by piece, and compared over seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from epitomic.analysis.transfer import KERNELS
from epitomic.cli import main
from epitomic.models import create_model, save_pretrained
from epitomic.reproduction.comparison import welch
from epitomic.reproduction.transfer_plans import TRANSFERS, plan_features
from epitomic.reproduction.transfer_table import transfer_claims, transfer_table
from tests.photographs import make_folders

NETWORKS = {"epitomic": "epitomic_small", "maxpool": "maxpool_small"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of two classes, and weights of two networks with two seeds each; `epitomic-1` is not there yet."""
    folder = tmp_path_factory.mktemp("transfer")
    make_folders(folder / "caltech101-tiny", train=33, val=1, classes=("ant", "bee"), scale=0.5)
    for name, seed in (("epitomic", 0), ("maxpool", 0), ("maxpool", 1)):
        save_weights(folder, name, seed)
    return folder


def save_weights(folder: Path, name: str, seed: int) -> None:
    torch.manual_seed(5 + seed)
    model = create_model(NETWORKS[name], num_classes=2, in_channels=3, image_size=16, width=0.1)
    standardize = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2]}
    save_pretrained(model, folder / f"runs/{name}-{seed}", standardize=standardize)


def reproduce(folder: Path, *options: str) -> int:
    folders = ["--data-dir", f"{folder}", "--out", f"{folder}/kept", "--runs", f"{folder}/runs", "--workers", "0"]
    return main(["reproduce", "caltech101", *folders, "--models", "epitomic", "maxpool", "--seeds", "2", *options])


def test_what_is_missing_is_measured_and_nothing_else(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(place) == 1
    shown = capsys.readouterr().out
    assert "7 measurements, 0 of them finished" in shown
    assert "epitomic-1, network: " in shown
    assert "`epitomic reproduce imagenette` trains it" in shown
    table = (place / "kept/table.md").read_text()
    assert shown.endswith(table)
    for row in ("network | `maxpool-0`", "network | `maxpool-1`", "untrained | `epitomic-0`", "pixels | `epitomic-0`"):
        assert sum(f"| {row} |" in line and line.count("±") == len(KERNELS) for line in table.splitlines()) == 1
    assert table.count("| one seed: no verdict |") == len(KERNELS)
    # One kernel is taken away and the last run arrives: these two are measured, and no other file is touched.
    path = place / "kept/maxpool-0.json"
    entries = json.loads(path.read_text())
    del entries["sha256"], entries["caltech101-tiny untrained rbf 30"]
    path.write_text(json.dumps(entries))
    save_weights(place, "epitomic", 1)
    before = (place / "kept/maxpool-1.json").stat().st_mtime_ns
    assert reproduce(place) == 0
    shown = capsys.readouterr().out
    assert "7 measurements, 5 of them finished" in shown
    assert "maxpool-0, untrained: rbf " in shown
    assert (place / "kept/maxpool-1.json").stat().st_mtime_ns == before
    assert "one seed" not in (place / "kept/table.md").read_text()
    assert reproduce(place, "--data-dir", "not there") == 0  # all is measured: no images are needed
    assert "7 measurements, 7 of them finished" in capsys.readouterr().out
    assert reproduce(place, "--show") == 0
    assert capsys.readouterr().out == (place / "kept/table.md").read_text() == transfer_table(place / "kept")


def test_all_seeds_of_the_networks_are_planned() -> None:
    for plan in TRANSFERS.values():
        planned = list(plan_features(plan))
        assert len(set(planned)) == len(planned)
        kinds = [one.kind for one in planned]
        assert (kinds.count("untrained"), kinds.count("pixels")) == (len(plan.models), 1)
    assert len([one for one in plan_features(TRANSFERS["caltech101_tiny"]) if one.kind == "network"]) == 13


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["caltech102"], "did you mean 'caltech101'"),
        (["caltech101", "--epochs", "2"], "trains nothing"),
        (["caltech101", "--jobs", "2"], "trains nothing"),
        (["caltech101", "--models", "nothing"], "unknown network of this table"),
        (["caltech101", "--data-dir", "nowhere"], "no images of caltech101 in nowhere"),
    ],
)
def test_bad_input(options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", *options, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def entry(kernel: str, mean: float, kind: str = "network") -> dict[str, object]:
    return {"kernel": kernel, "mean": mean, "features": kind}


def test_the_claim_is_tested_over_seeds() -> None:
    epitomic, maxpool = [0.5, 0.52, 0.51], [0.4, 0.41, 0.42]
    entries = [(f"epitomic-{seed}", entry("rbf", mean)) for seed, mean in enumerate(epitomic)]
    entries += [(f"maxpool-{seed}", entry("rbf", mean)) for seed, mean in enumerate(maxpool)]
    entries += [("maxpool-0", entry("rbf", 0.9, "pixels")), ("epitomic_norm-0", entry("rbf", 0.9))]
    (row,) = [line for line in transfer_claims(entries).splitlines() if line.startswith("| `")]
    assert f"| 3 and 3 | {welch(epitomic, maxpool)} | " in row
    assert row.endswith("| confirmed |")
    swapped = [({"e": "maxpool", "m": "epitomic"}[run[0]] + run[-2:], figures) for run, figures in entries[:6]]
    assert transfer_claims(swapped).endswith("| refuted |\n")
    assert transfer_claims(entries[:3]) == ""
