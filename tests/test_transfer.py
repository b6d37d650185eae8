"""The transfer experiment against scikit-learn used plainly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from epitomic.cli import main
from epitomic.cli.features import as_initialised
from epitomic.data import Standardize
from epitomic.data.folders import FolderImages, list_images
from epitomic.errors import UserError
from epitomic.models import create_model, save_pretrained
from epitomic.transfer import Classifier, Features, choose_training, extract, squashed, transfer
from tests.photographs import make_folders, picture

CLASSES = ("a", "b", "c", "d")


def features(count: int = 25, size: int = 12) -> Features:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat_interleave(count)
    centers = torch.randn(4, size, generator=random)
    return Features(centers[labels] + 1.2 * torch.randn(4 * count, size, generator=random), labels, CLASSES)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_machine_is_scikit_learns_on_unit_vectors(kernel: str) -> None:
    from sklearn.svm import SVC

    data = features()
    mask = choose_training(data.labels, CLASSES, 10, seed=0, split=0)
    vectors = (data.vectors / data.vectors.norm(dim=1, keepdim=True)).numpy()
    plain = SVC(kernel=kernel).fit(vectors[mask], data.labels[mask])
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
    assert len(set(transfer(features(), per_class=10, splits=4))) > 1


def test_too_few_images_name_the_class() -> None:
    with pytest.raises(UserError, match="class 'a' has 25 images, and --train-per-class 25"):
        transfer(features(), per_class=25)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    torch.manual_seed(5)  # not the one that the untrained network has
    model = create_model("maxpool_small", num_classes=2, in_channels=3, image_size=16, width=0.25)
    extra = {"standardize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2]}}
    save_pretrained(model, tmp_path / "run", **extra)
    make_folders(tmp_path / "in", train=6, val=1)
    return tmp_path


def test_features_are_the_last_layers_of_squashed_images(trained: Path) -> None:
    from epitomic.models import from_pretrained

    model = from_pretrained(trained / "run")
    source = FolderImages(list_images(trained / "in/train"), 0)
    standardize = Standardize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    found = extract(model, source, 16, standardize, workers=2)
    for index in (0, 7):
        image = source.read(index).resize((16, 16), 2)  # bilinear
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None] / 255
        mean, std = (torch.tensor(v)[:, None, None] for v in (standardize.mean, standardize.std))
        expected = model.forward_features((pixels - mean) / std)  # type: ignore[operator]
        torch.testing.assert_close(found.vectors[index : index + 1], expected.detach(), rtol=1e-4, atol=1e-5)
    pixels = extract(None, source, 16, standardize).vectors
    assert pixels.shape == (18, 3 * 16 * 16)


def test_squashing_keeps_no_aspect() -> None:
    assert squashed(picture(1, width=50, height=20), 16).shape == (1, 16, 16, 3)


def test_the_cache_is_keyed_by_weights_and_data(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["transfer", str(trained / "run"), str(trained / "in"), "--train-per-class", "3", "--splits", "2"]

    def cached() -> int:
        return len(list((trained / "run/features").glob("*.safetensors")))

    assert main(words) == 0
    assert cached() == 1
    monkeypatch.setattr("epitomic.transfer.extract", None)  # a second call computes nothing
    assert main([*words, "--kernel", "rbf"]) == 0
    monkeypatch.undo()
    for kind in ("untrained", "pixels"):
        assert main([*words, "--features", kind]) == 0
    assert cached() == 3
    assert main([*words, "--features", "untrained", "--seed", "1"]) == 0
    assert cached() == 4
    picture(99).save(trained / "in/train/ant/new.png")
    assert main(words) == 0
    assert cached() == 5
    damaged = next((trained / "run/features").glob("*.safetensors"))
    damaged.write_bytes(damaged.read_bytes()[:-5])
    for kind in ("network", "untrained", "pixels"):
        assert main([*words, "--features", kind]) == 0


def test_files_for_people_who_want_the_vectors(trained: Path) -> None:
    from safetensors.torch import load_file

    words = ["features", str(trained / "run"), str(trained / "in"), "--split", "val", "--out"]
    assert main([*words, str(trained / "x.npz")]) == 0
    assert main([*words, str(trained / "x.safetensors")]) == 0
    arrays = np.load(trained / "x.npz", allow_pickle=False)
    assert arrays["classes"].tolist() == ["ant", "bee", "cat"]
    assert arrays["labels"].tolist() == [0, 1, 2]
    assert np.array_equal(arrays["vectors"], load_file(trained / "x.safetensors")["vectors"].numpy())
    assert main([*words, str(trained / "x.npz")]) == 2


def test_several_runs_make_a_table_that_grows(trained: Path) -> None:
    import shutil

    shutil.copytree(trained / "run", trained / "other")
    table, data = trained / "kept/table.md", str(trained / "in")
    words = ["--train-per-class", "3", "--splits", "2", "--out", str(table.parent)]
    runs = [str(trained / "run"), str(trained / "other")]
    assert main(["transfer", *runs, data, "--features", "network", "untrained", "--kernel", "both", *words]) == 0
    rows = [line for line in table.read_text().splitlines() if line.startswith(("| network", "| untrained"))]
    assert [line.split(" | ")[:2] for line in rows] == [
        ["| network", "`other`"],
        ["| network", "`run`"],
        ["| untrained", "`other`"],
        ["| untrained", "`run`"],
    ]
    assert rows[0].replace("other", "run") == rows[1]  # the same weights
    assert all(line.count("±") == 2 for line in rows)  # both kernels
    assert main(["transfer", runs[0], data, "--features", "pixels", *words]) == 0
    assert "| pixels | `run` | 768 |" in table.read_text()
    assert all(line in table.read_text() for line in rows)
    assert main(["transfer", runs[0], data, "--features", "pixel", *words]) == 2
    assert main(["transfer", runs[0], runs[0], data, *words]) == 2  # one file for two


def test_an_untrained_network_keeps_the_whitening_of_the_trained_one() -> None:
    torch.manual_seed(1)
    trained = create_model("epitomic_small", in_channels=3, image_size=16, width=0.25, whiten=True)
    trained.fit(torch.rand(20, 3, 16, 16))  # type: ignore[operator]
    untrained = as_initialised(trained, seed=1)
    assert untrained.whitening.weight.equal(trained.state_dict()["whitening.weight"])
    torch.manual_seed(1)
    begun = create_model("epitomic_small", in_channels=3, image_size=16, width=0.25, whiten=True)
    assert all(p.equal(begun.state_dict()[n]) for n, p in untrained.named_parameters() if p.requires_grad)
