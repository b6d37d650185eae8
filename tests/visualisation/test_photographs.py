"""Runs on photographs are looked at like any other."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from epitomic.data.photographs.crops import Photographs, center_crop
from epitomic.data.photographs.folders import FolderImages, list_images
from epitomic.models import create_model, save_pretrained
from epitomic.support.errors import UserError
from epitomic.training.run_folder import RunFolder
from epitomic.visualisation import open_run
from epitomic.visualisation.report import write_report
from tests.photographs import CLASSES, make_folders


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    make_folders(tmp_path / "imagenette", train=1, val=4)
    torch.manual_seed(0)
    model = create_model("epitomic_small", num_classes=3, in_channels=3, image_size=20, width=0.25)
    extra = {
        "dataset": "imagenette",
        "classes": list(CLASSES),
        "standardize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2]},
        "photographs": asdict(Photographs(crop=20, size=24)),
    }
    save_pretrained(model, tmp_path / "run", **extra)
    return open_run(tmp_path / "run", str(tmp_path))


def test_centre_crops_of_all_classes(run: RunFolder, tmp_path: Path) -> None:
    source = FolderImages(list_images(tmp_path / "imagenette/val"), 24)
    crops = [torch.from_numpy(center_crop(source.read(i), 20)[0].copy()).permute(2, 0, 1) for i in range(12)]
    assert run.test.labels.bincount().tolist() == [4, 4, 4]
    assert len(run.test.labels[:4].unique()) > 1  # the first ones are not all of the first class
    for image, label in zip(run.test.images, run.test.labels.tolist(), strict=True):
        assert any(torch.equal(image, crops[i]) for i in range(4 * label, 4 * label + 4))


def test_the_report_shows_them(run: RunFolder, tmp_path: Path) -> None:
    write_report([run], tmp_path / "page.html", images=12)
    page = (tmp_path / "page.html").read_text()
    assert "The surest among 12 test images, each seen by its centre crop." in page
    assert "12 test images are shifted" in page
    for section in ("positions", "matches", "robustness", "mistakes"):
        assert f"id={section}" in page or f'id="{section}"' in page


def test_other_classes_are_told(run: RunFolder, tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / "imagenette" / split / "cat").rename(tmp_path / "imagenette" / split / "dog")
    with pytest.raises(UserError, match="it lacks cat"):
        _ = run.test
