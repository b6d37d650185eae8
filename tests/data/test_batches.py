from __future__ import annotations

import pytest
import torch

from epitomic.data import Augmentation, Split, Standardize, TrainingBatches
from epitomic.data.augment import apply, choose, cut_out
from epitomic.data.memory import view_batches
from epitomic.rng import generator

EVERYTHING = Augmentation(shift=2, flip=True, rotate=15, scale=0.1, shear=5, translate=1, elastic=0.5, cutout=3)


def split(count: int = 70, channels: int = 2, size: int = 10) -> Split:
    images = torch.randint(0, 256, (count, channels, size, size), generator=generator("test"), dtype=torch.uint8)
    return Split(images, torch.arange(count) % 10)


def test_standardize() -> None:
    samples = split(500)
    images = Standardize.of(samples)(samples.images.float() / 255)
    assert torch.allclose(images.mean((0, 2, 3)), torch.zeros(2), atol=1e-4)
    assert torch.allclose(images.std((0, 2, 3)), torch.ones(2), atol=1e-3)


@pytest.mark.parametrize("augmentation", [Augmentation(), EVERYTHING])
def test_parts_are_parts_of_the_whole(augmentation: Augmentation) -> None:
    samples = split()
    batches = TrainingBatches(samples, 32, augmentation, Standardize.of(samples), seed=3)
    order = batches.order(1)
    images, labels = batches.get(order, 1, 0, slice(0, 32))
    halves = [batches.get(order, 1, 0, slice(first, first + 16)) for first in (0, 16)]
    assert torch.equal(torch.cat([h[0] for h in halves]), images)
    assert torch.equal(torch.cat([h[1] for h in halves]), labels)


def test_epochs_differ_and_repeat() -> None:
    samples = split()
    batches = TrainingBatches(samples, 32, EVERYTHING, Standardize.of(samples), seed=3)
    assert len(batches) == 2
    assert batches.order(0).unique().numel() == 64
    assert not torch.equal(batches.order(0), batches.order(1))
    again = TrainingBatches(samples, 32, EVERYTHING, Standardize.of(samples), seed=3)
    one, two = (b.get(b.order(0), 0, 1, slice(0, 32))[0] for b in (batches, again))
    assert torch.equal(one, two)
    other = TrainingBatches(samples, 32, EVERYTHING, Standardize.of(samples), seed=4)
    assert not torch.equal(batches.order(0), other.order(0))


def test_shift_is_a_shift_and_flip_a_flip() -> None:
    images = torch.rand(6, 3, 9, 9)
    config = Augmentation(shift=3, flip=True)
    choices = choose(config, 6, 9, generator("x"))
    moved = apply(config, choices, images)
    padded = torch.nn.functional.pad(images, (3, 3, 3, 3))
    for i in range(6):
        dy, dx = choices["shift"][i].tolist()
        expected = padded[i, :, 3 + dy : 12 + dy, 3 + dx : 12 + dx]
        assert torch.equal(moved[i], expected.flip(-1) if choices["flip"][i] else expected)


def test_reflection_brings_in_no_zeros() -> None:
    images = torch.rand(20, 1, 9, 9) + 1
    config = Augmentation(shift=4, reflect=True)
    assert (apply(config, choose(config, 20, 9, generator("x")), images) >= 1).all()


def test_a_warp_by_nothing_is_the_identity_and_by_a_quarter_turn_a_rotation() -> None:
    images = torch.rand(4, 1, 8, 8)
    config = Augmentation(translate=1e-9)
    assert torch.allclose(apply(config, choose(config, 4, 8, generator("x")), images), images, atol=1e-5)
    config = Augmentation(rotate=90)
    choices = choose(config, 4, 8, generator("x"))
    choices["affine"] = torch.tensor([[0.0, -1, 0], [1, 0, 0]]).expand(4, 2, 3)
    assert torch.allclose(apply(config, choices, images), images.rot90(1, (2, 3)), atol=1e-5)


def test_cutout_is_a_square_of_zeros() -> None:
    config = Augmentation(cutout=4)
    images = cut_out(config, choose(config, 50, 12, generator("x")), torch.ones(50, 1, 12, 12))
    zeros = (images == 0).sum((1, 2, 3))
    assert zeros.max() == 16
    assert zeros.min() >= 4  # at the corner, a quarter of it is inside


def test_alternate_flips_mirror_each_image_in_every_other_epoch() -> None:
    samples = split(64, channels=1)
    samples = Split(samples.images, torch.arange(64))
    batches = TrainingBatches(samples, 16, Augmentation(flip=True, alternate=True), Standardize((0.0,), (1.0,)), seed=3)
    mirrored = torch.zeros(4, 64, dtype=torch.bool)
    for epoch in range(4):
        order = batches.order(epoch)
        for batch in range(4):
            seen, labels = batches.get(order, epoch, batch, slice(0, 16))
            for image, label in zip(seen, labels.tolist(), strict=True):
                plain = samples.images[label].float() / 255
                mirrored[epoch, label] = torch.equal(image, plain.flip(-1))
                assert mirrored[epoch, label] or torch.equal(image, plain)
    assert torch.equal(mirrored[0], ~mirrored[1])
    assert torch.equal(mirrored[0], mirrored[2])
    assert 16 < mirrored[0].sum() < 48


@pytest.mark.parametrize(("views", "count"), [("mirrored", 2), ("shifted", 6)])
def test_views_of_test_images(views: str, count: int) -> None:
    samples = split(5, channels=1, size=6)
    ((seen, labels),) = view_batches(samples, Standardize((0.0,), (1.0,)), views)
    plain = samples.images.float() / 255
    assert seen.shape == (5, count, 1, 6, 6)
    assert torch.equal(labels, samples.labels)
    half = count // 2
    assert torch.equal(seen[:, 0], plain)
    assert torch.equal(seen[:, half:], seen[:, :half].flip(-1))
    if views == "shifted":
        assert torch.equal(seen[:, 1, :, 1:, 1:], plain[:, :, :-1, :-1])
        assert torch.equal(seen[:, 1, :, 0, 1:], plain[:, :, 1, :-1])  # mirrored at the border
        assert torch.equal(seen[:, 2, :, :-1, :-1], plain[:, :, 1:, 1:])


def test_nudged_views_are_shifted_towards_the_corners_and_not_mirrored() -> None:
    samples = split(5, channels=1, size=6)
    ((seen, labels),) = view_batches(samples, Standardize((0.0,), (1.0,)), "nudged")
    plain = samples.images.float() / 255
    assert seen.shape == (5, 5, 1, 6, 6)
    assert torch.equal(labels, samples.labels)
    assert torch.equal(seen[:, 0], plain)
    middle = plain[:, :, 2:4, 2:4]
    at = [
        [y, x]
        for image in seen[0]
        for y in range(5)
        for x in range(5)
        if torch.equal(image[:, y : y + 2, x : x + 2], middle[0])
    ]
    assert at == [[2, 2], [3, 3], [1, 1], [3, 1], [1, 3]]
