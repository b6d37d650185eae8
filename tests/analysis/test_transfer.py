"""The transfer experiment against scikit-learn used plainly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from epitomic.analysis.features import Features
from epitomic.analysis.transfer import Classifier, choose_training, measure_transfer
from epitomic.cli import main
from epitomic.support.errors import UserError

CLASSES = ("a", "b", "c", "d")


def features(count: int = 25, size: int = 12) -> Features:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat_interleave(count)
    centers = torch.randn(4, size, generator=random)
    return Features(centers[labels] + 1.2 * torch.randn(4 * count, size, generator=random), labels, CLASSES)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [("linear", {}), ("rbf", {"gamma": "scale"}), ("rbf-libsvm", {"gamma": "auto"})],  # "auto" is 1 / features
)
def test_the_machine_is_scikit_learns_on_unit_vectors(kernel: str, options: dict[str, str]) -> None:
    from sklearn.svm import SVC

    data = features()
    mask = choose_training(data.labels, CLASSES, 10, seed=0, split=0)
    vectors = (data.vectors / data.vectors.norm(dim=1, keepdim=True)).numpy()
    plain = SVC(kernel=kernel.partition("-")[0], **options).fit(vectors[mask], data.labels[mask])
    guesses, truth = plain.predict(vectors[~mask]), data.labels[~mask].numpy()
    by_class = [float((guesses[truth == label] == label).mean()) for label in range(4)]
    assert 0.4 < np.mean(by_class) < 1
    assert Classifier(data, kernel).accuracy(mask) == pytest.approx(np.mean(by_class))


def test_splits_are_random_and_repeat() -> None:
    labels = features().labels
    masks = [choose_training(labels, CLASSES, 10, 0, split) for split in (0, 0, 1)]
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert torch.bincount(labels[masks[2]]).tolist() == [10] * 4
    assert len(set(measure_transfer(features(), per_class=10, splits=4)["accuracies"])) > 1


def test_too_few_images_name_the_class() -> None:
    with pytest.raises(UserError, match="class 'a' has 25 images, and --train-per-class 25"):
        measure_transfer(features(), per_class=25)


def test_several_runs_make_a_table_that_grows(trained: Path) -> None:
    import shutil

    shutil.copytree(trained / "run", trained / "other")
    table, data = trained / "kept/table.md", str(trained / "in")
    words = ["--train-per-class", "3", "--splits", "2", "--out", str(table.parent)]
    runs = [str(trained / "run"), str(trained / "other")]
    assert main(["transfer", *runs, data, "--features", "network", "untrained", *words]) == 0
    rows = [line for line in table.read_text().splitlines() if line.startswith(("| network", "| untrained"))]
    assert [line.split(" | ")[:2] for line in rows] == [
        ["| network", "`other`"],
        ["| network", "`run`"],
        ["| untrained", "`other`"],
        ["| untrained", "`run`"],
    ]
    assert rows[0].replace("other", "run") == rows[1]  # the same weights
    assert all(line.count("±") == 3 for line in rows)  # all kernels
    assert main(["transfer", runs[0], data, "--features", "pixels", "--kernel", "linear", *words]) == 0
    (pixels,) = (line for line in table.read_text().splitlines() if line.startswith("| pixels | `run` | 768 |"))
    assert (pixels.count("±"), pixels.count("| - ")) == (1, 2)
    assert all(line in table.read_text() for line in rows)
    assert main(["transfer", runs[0], data, "--features", "pixel", *words]) == 2
    assert main(["transfer", runs[0], runs[0], data, *words]) == 2  # one file for two
