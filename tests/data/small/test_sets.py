"""The sets that have a name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from epitomic.data.location import DATA_VARIABLE
from epitomic.data.small.cifar import CifarSource
from epitomic.data.small.idx import IdxSource
from epitomic.data.small.sets import load_set
from epitomic.support.errors import UserError
from tests.fuzzing import VARIANTS, mutate


def test_digits() -> None:
    digits = load_set("digits")
    assert (len(digits.train), len(digits.test)) == (1437, 360)
    assert digits.train.images.shape[1:] == (1, 8, 8)
    assert digits.train.images.max() == 255


def test_unknown_set() -> None:
    with pytest.raises(UserError, match="did you mean 'cifar10'"):
        load_set("cifar100")


@pytest.mark.parametrize(("name", "counts"), [("mnist", (60000, 10000)), ("cifar10", (50000, 10000))])
def test_the_real_thing(name: str, counts: tuple[int, int]) -> None:
    root = os.environ.get(DATA_VARIABLE)
    folder = {"mnist": "MNIST/raw", "cifar10": "cifar-10-batches-bin"}[name]
    if not root or not Path(root, folder).is_dir():
        pytest.skip(f"no {folder} under {DATA_VARIABLE}")
    images = load_set(name)
    assert (len(images.train), len(images.test)) == counts


@VARIANTS
def test_fuzzed_sets_are_refused(
    variants: int, idx_source: IdxSource, cifar_source: CifarSource, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    files = [*(tmp_path / "MNIST/raw").iterdir(), *(tmp_path / "cifar-10-batches-bin").iterdir()]
    for number in range(variants):
        path = files[number % len(files)]
        good = path.read_bytes()
        bad = mutate(good, rng)
        path.write_bytes(bad)
        source = idx_source if path.suffix == ".gz" else cifar_source
        if bad == good:  # a mutation may be none
            source.load(tmp_path)
            continue
        with pytest.raises(UserError) as caught:
            source.load(tmp_path)
        assert "\n" not in str(caught.value)
        path.write_bytes(good)
