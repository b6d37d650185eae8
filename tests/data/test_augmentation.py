"""Each change of an image against a literal version."""

from __future__ import annotations

import torch

from epitomic.data.augmentation import Augmentation, apply, choose, cut_out
from epitomic.support.rng import generator


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
