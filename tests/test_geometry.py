"""The sizes of the paper's layers, and errors that say which sizes would fit."""

import numpy as np
import pytest
import torch

from epitomic.geometry import Geometry, Size, as_pair


def create(
    kernel_size: Size = 3,
    pool_size: Size | None = 2,
    stride: Size | None = None,
    padding: Size = 0,
    epitome_size: Size | None = None,
    epitome_stride: Size = 1,
) -> Geometry:
    return Geometry.create(
        kernel_size=kernel_size,
        pool_size=pool_size,
        stride=stride,
        padding=padding,
        epitome_size=epitome_size,
        epitome_stride=epitome_stride,
    )


@pytest.mark.parametrize(
    ("kernel", "pool", "step", "epitome"),
    [(8, 3, 2, 12), (6, 3, 1, 8), (3, 3, 1, 5)],  # Table 2: layers 1, 2 and 6
)
def test_mini_epitomes_of_the_paper(kernel: int, pool: int, step: int, epitome: int) -> None:
    geometry = create(kernel, pool, epitome_stride=step)
    assert geometry.epitome == geometry.mini == (epitome, epitome)
    assert geometry.outputs == (1, 1)


@pytest.mark.parametrize(
    ("kernel", "step", "epitome", "outputs"),
    [(8, 2, 36, 5), (6, 1, 26, 7), (3, 1, 26, 8)],  # Table 3: 4x25, 4x49 and 8x64 channels
)
def test_topographic_outputs_of_the_paper(kernel: int, step: int, epitome: int, outputs: int) -> None:
    assert create(kernel, 3, epitome_size=epitome, epitome_stride=step).outputs == (outputs, outputs)


def test_output_sizes_of_the_paper() -> None:
    assert create(8, 3, stride=4, epitome_stride=2).output_size(220, 220) == (54, 54)
    assert create(6, 3).output_size(54, 54) == (17, 17)
    assert create(3, 3).output_size(17, 17) == (5, 5)


def test_points_after_the_reductions() -> None:
    assert create(8, 3, epitome_stride=2).points == (6, 6)
    assert create(6, 3).points == (8, 8)
    assert create((3, 5), (2, 1), epitome_stride=(2, 1)).points == (3, 5)


def test_numpy_integers_are_integers_and_tensors_are_not() -> None:
    assert as_pair("kernel_size", np.int64(3)) == as_pair("kernel_size", (np.int32(3), 3)) == (3, 3)
    for value in (torch.tensor(3), np.array(3)):
        with pytest.raises(TypeError, match="kernel_size must be an int or a pair of ints"):
            as_pair("kernel_size", value)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"kernel_size": 0}, ValueError, "kernel_size must be at least 1, got 0"),
        ({"kernel_size": 2.5}, TypeError, "kernel_size must be an int or a pair of ints, got 2.5"),
        ({"kernel_size": True}, TypeError, "kernel_size must be an int or a pair of ints, got True"),
        ({"kernel_size": (1, 2, 3)}, TypeError, "kernel_size must be an int or a pair of ints"),
        ({"kernel_size": "3"}, TypeError, "kernel_size must be an int or a pair of ints, got '3'"),
        ({"pool_size": -1}, ValueError, "pool_size must be at least 1, got -1"),
        ({"stride": 0}, ValueError, "stride must be at least 1, got 0"),
        ({"padding": -1}, ValueError, "padding must be at least 0, got -1"),
        ({"padding": "same"}, TypeError, "padding must be an int or a pair of ints, got 'same'"),
        ({"epitome_stride": (1, 0)}, ValueError, r"epitome_stride must be at least 1, got \(1, 0\)"),
        ({"epitome_size": 2}, ValueError, "epitome height 2 is smaller than the filter's 3"),
        ({"epitome_size": (4, 3)}, ValueError, "epitome of width 3 holds 1 filter .* must be at least 4"),
        ({"pool_size": None}, ValueError, "needs an epitome_size"),
    ],
)
def test_errors_name_the_argument(arguments: dict[str, object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        create(**arguments)  # type: ignore[arg-type]


def test_image_smaller_than_the_filter() -> None:
    with pytest.raises(ValueError, match=r"input width 2 with padding 0 .* at least 3"):
        create().output_size(3, 2)
