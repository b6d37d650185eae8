"""The images of a run are counted, and copies across its splits are found and named."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from epitomic.analysis import data_check
from epitomic.analysis.data_check import check_data, check_if_possible, open_galleries
from epitomic.analysis.mistakes import mistaken_images, score_test_images, surest_mistakes
from epitomic.analysis.names import own_names
from epitomic.cli import main
from epitomic.data.photographs.crops import Photographs
from epitomic.models import create_model, save_pretrained
from epitomic.support.options import to_dict
from epitomic.training.recipes import get_recipe
from epitomic.training.run_folder import RunFolder, open_run
from epitomic.visualisation.report import write_report
from tests.own_images import make_own
from tests.photographs import CLASSES, make_folders


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run on photographs, with a copy, a copy with another label, and an image that cannot be read in ``val``."""
    images = make_folders(tmp_path / "imagenette", train=8, val=4, scale=2.0)
    shutil.copy(images / "train/bee/000.jpg", images / "val/bee/the same.jpg")
    shutil.copy(images / "train/cat/001.png", images / "val/ant/wrong.png")
    (images / "val/cat/damaged.png").write_text("no image")
    recipe = get_recipe("imagenette")
    recipe = replace(recipe, photographs=Photographs(crop=40, size=48), batch_size=4)
    recipe = replace(recipe, model=replace(recipe.model, name="epitomic_small", width=0.25))
    torch.manual_seed(0)
    model = create_model("epitomic_small", num_classes=3, in_channels=3, image_size=40, width=0.25)
    extra = {
        "dataset": "imagenette",
        "classes": list(CLASSES),
        "standardize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2]},
        "photographs": asdict(recipe.photographs),
    }
    save_pretrained(model, tmp_path / "run", **extra)
    (tmp_path / "run/recipe.json").write_text(json.dumps(to_dict(recipe)))
    return open_run(tmp_path / "run", str(tmp_path))


def test_copies_across_splits_are_named(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    check = check_data(run)
    root = tmp_path / "imagenette"
    assert check.images == {"training": 24, "test": 15}
    assert check.training == [8, 8, 8]
    assert check.tested == [5, 5, 5]
    assert check.few == [0, 1, 2]
    names = [pair.names for pair in check.pairs]
    assert (str(root / "train/bee/000.jpg"), str(root / "val/bee/the same.jpg")) in names
    assert names[0] == (str(root / "train/cat/001.png"), str(root / "val/ant/wrong.png"))  # other labels come first
    assert check.pairs[0].labels == (2, 0)
    assert check.other_labels == sum(pair.labels[0] != pair.labels[1] for pair in check.pairs)
    assert check.copied["training", "test"] >= 2
    monkeypatch.setattr(data_check, "MOST", 30)
    assert "39 photographs" in (check_data(run).unsearched or "")


def test_the_report_names_files(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (found,) = write_report([run], tmp_path / "page.html", images=20, robustness=False)
    page = (tmp_path / "page.html").read_text()
    assert "3 of 3 classes have too few images" in page
    assert "val/ant/wrong.png" in page
    assert "1 pair has two different labels" in page or "pairs have two different labels" in page
    assert found.images == 14  # one cannot be read
    assert found.mistaken is not None
    assert len(found.mistaken_names) == len(found.mistaken) == len(found.mistakes)
    assert all(Path(name).is_file() and name in page for name in found.mistaken_names)


def test_mistakes_are_those_of_their_files(run: RunFolder) -> None:
    test = run.open_test_images()
    tested = score_test_images(run.model, test, 20)
    mistakes = surest_mistakes(tested.scores)
    shares = [mistake.probabilities[0][1] for mistake in mistakes]
    assert shares == sorted(shares, reverse=True)
    pictures, names = mistaken_images(test, [tested.numbers[m.index] for m in mistakes])
    for mistake, pixels, name in zip(mistakes, pictures, names, strict=True):
        assert f"/{CLASSES[mistake.label]}/" in name
        scores = run.model(run.to_input(pixels[None]))[0].detach().double().softmax(0)
        assert float(scores[mistake.predicted]) == pytest.approx(mistake.probabilities[0][1], abs=1e-4)


def test_digits_are_counted_but_too_small_to_compare(folder: Path) -> None:
    check = check_data(open_run(folder))
    assert check.images == {"training": 1257, "validation": 180, "test": 360}
    assert sum(check.training) == 1257
    assert check.few == []
    assert check.unsearched == "the images have 8 pixels: below 32, different images often look the same"


def test_without_images_a_note_says_so(run: RunFolder, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "imagenette").rename(tmp_path / "away")
    check, note = check_if_possible(run)
    assert check is None
    assert note is not None
    assert note.startswith("The images were not checked: no images of imagenette")
    (tmp_path / "run/recipe.json").unlink()
    assert check_if_possible(open_run(tmp_path / "run")) == (None, None)


def test_small_images_of_a_folder_have_their_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = make_own(tmp_path / "own", 20, side=20)
    words = ["train", str(root), "--out", str(tmp_path / "out"), "--epochs", "1", "--from", "none", "--no-report"]
    assert main([*words, "--model.width", "0.25", "--workers", "0", "--quiet"]) == 0
    run = open_run(tmp_path / "out")
    galleries = {gallery.split: gallery for gallery in open_galleries(run)}
    assert [*galleries] == ["training", "validation", "test"]
    names = [gallery.name(i) for gallery in galleries.values() for i in range(len(gallery.images))]
    assert sorted(names) == sorted(map(str, root.glob("*/*.png")))
    for gallery in galleries.values():
        for i in range(len(gallery.images)):
            assert Path(gallery.name(i)).parent.name == run.classes[int(gallery.images.labels[i])]
    check = check_data(run)
    assert sum(check.images.values()) == 40
    (found,) = write_report([run], tmp_path / "page.html", images=20, robustness=False)
    assert all(Path(name).is_file() for name in found.mistaken_names)
    assert all(name in own_names(run)["test"] for name in found.mistaken_names)
