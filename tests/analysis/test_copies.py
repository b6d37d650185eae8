"""Near-copies are found, and other images are not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageFilter

from epitomic.analysis.copies import BITS, difference_hash, near_copies, shrink, shrink_all
from epitomic.data.photographs.folders import FolderImages, list_images
from epitomic.data.small.splits import Split
from epitomic.support.images import decode, to_array


def scenes(count: int, seed: int = 0, side: int = 96) -> list[Image.Image]:
    """Smooth random pictures, no two alike."""
    draws = torch.Generator().manual_seed(seed)
    made = torch.randint(0, 256, (count, 7, 7, 3), generator=draws, dtype=torch.uint8).numpy()
    return [Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC) for pixels in made]


def tensor(images: list[Image.Image]) -> torch.Tensor:
    return torch.stack([torch.from_numpy(to_array(image).copy()) for image in images]).permute(0, 3, 1, 2)


def pressed(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=30)
    return decode(file.getvalue())


@pytest.mark.parametrize("change", ["pressed", "shrunk", "brighter", "blurred", "grey"])
def test_changed_copies_are_found_and_nothing_else(change: str) -> None:
    images = scenes(200)
    changed = {
        "pressed": pressed,
        "shrunk": lambda image: image.resize((40, 40)).resize((96, 96)),
        "brighter": lambda image: image.point(lambda value: min(255, 0.8 * value + 40)),
        "blurred": lambda image: image.filter(ImageFilter.GaussianBlur(1.5)),
        "grey": lambda image: image.convert("L").convert("RGB"),
    }[change]
    copies = [changed(image) for image in images[:40]]
    others = scenes(200, seed=1)
    found = near_copies(shrink(tensor(images)), shrink(tensor([*copies, *others])))
    assert [copy.distance for copy in found] == sorted(copy.distance for copy in found)
    pairs = {(copy.first, copy.second) for copy in found}
    assert len(pairs & {(i, i) for i in range(40)}) >= 36
    assert pairs <= {(i, i) for i in range(40)}


def test_the_hash_and_the_pairs_are_those_of_a_plain_loop() -> None:
    a, b = shrink(tensor(scenes(30))), shrink(tensor([*scenes(5), *scenes(20, seed=2)]))
    rows = difference_hash(a)
    for image, bits in zip(a, rows, strict=True):
        assert bits.tolist() == [bool(row[i] > row[i + 1]) for row in image for i in range(8)]
    assert rows.shape[1] == BITS
    assert [(c.first, c.second, c.distance) for c in near_copies(a, b)] == [(i, i, 0) for i in range(5)]


def test_flat_images_are_no_copies_of_each_other() -> None:
    flat = torch.stack([torch.full((3, 40, 40), value, dtype=torch.uint8) for value in (0, 90, 255)])
    assert near_copies(shrink(flat), shrink(flat)) == []


def test_images_on_disk_and_in_memory_give_the_same_values(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    images = scenes(3, side=64)
    for number, image in enumerate(images):
        image.save(tmp_path / "a" / f"{number}.png")
    (tmp_path / "a" / "3.png").write_text("no image")
    shares: list[float] = []
    found = shrink_all(FolderImages(list_images(tmp_path), 64), shares.append)
    memory = shrink_all(Split(tensor(images), torch.zeros(3, dtype=torch.long)))
    assert torch.allclose(found[:3], memory, atol=1e-3)
    assert found[3].isnan().all()
    assert shares == [1.0]
    assert [(c.first, c.second) for c in near_copies(found, memory)] == [(0, 0), (1, 1), (2, 2)]
    assert near_copies(found[3:], found) == []
