"""Feature vectors: computed, cached and written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from epitomic.analysis.features import as_initialised, extract, squashed
from epitomic.cli import main
from epitomic.data.photographs.folders import FolderImages, list_images
from epitomic.data.standardisation import Standardize
from epitomic.models import create_model
from tests.photographs import picture


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


def test_a_residual_network_gives_what_goes_into_its_softmax_layer(trained: Path) -> None:
    torch.manual_seed(0)
    model = create_model("epitomic_resnet", num_classes=2, image_size=32, width=0.25).eval()
    source = FolderImages(list_images(trained / "in/val"), 0)
    standardize = Standardize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    found = extract(model, source, 32, standardize)
    images = torch.stack([torch.from_numpy(squashed(source.read(i), 32)[0].copy()) for i in range(len(source))])
    scores = model(standardize(images.permute(0, 3, 1, 2).float() / 255))
    assert found.vectors.dim() == 2
    torch.testing.assert_close(model.out(found.vectors), scores, rtol=1e-4, atol=1e-5)  # type: ignore[operator]


def test_squashing_keeps_no_aspect() -> None:
    assert squashed(picture(1, width=50, height=20), 16).shape == (1, 16, 16, 3)


def test_the_cache_is_keyed_by_weights_and_data(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["transfer", str(trained / "run"), str(trained / "in"), "--train-per-class", "3", "--splits", "2"]

    def cached() -> int:
        return len(list((trained / "run/features").glob("*.safetensors")))

    assert main(words) == 0
    assert cached() == 1
    monkeypatch.setattr("epitomic.analysis.features.extract", None)  # a second call computes nothing
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


def test_an_untrained_network_keeps_the_whitening_of_the_trained_one() -> None:
    torch.manual_seed(1)
    trained = create_model("epitomic_small", in_channels=3, image_size=16, width=0.25, whiten=True)
    trained.fit(torch.rand(20, 3, 16, 16))  # type: ignore[operator]
    untrained = as_initialised(trained, seed=1)
    assert untrained.whitening.weight.equal(trained.state_dict()["whitening.weight"])
    torch.manual_seed(1)
    begun = create_model("epitomic_small", in_channels=3, image_size=16, width=0.25, whiten=True)
    assert all(p.equal(begun.state_dict()[n]) for n, p in untrained.named_parameters() if p.requires_grad)
