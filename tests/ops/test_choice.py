"""Which algorithm ``"auto"`` takes, and why a given one cannot serve a call."""

from typing import Any

import pytest
import torch

from epitomic import epitomic_conv2d
from epitomic.geometry import Geometry, PoolGeometry
from epitomic.ops.choice import choose_algorithm, choose_tile
from epitomic.ops.library import NATIVE


def test_auto() -> None:
    def choice(channels: int, kernel: int, pool: int, dtype: torch.dtype = torch.float32) -> str:
        geometry = Geometry.create(
            kernel_size=kernel, pool_size=pool, stride=None, padding=0, epitome_size=None, epitome_stride=1
        )
        weight = torch.empty(8, channels, *geometry.epitome, dtype=dtype)
        return choose_algorithm("auto", geometry, torch.empty(1, channels, 16, 16, dtype=dtype), weight, dtype)

    assert choice(64, 3, 2) == ("native" if NATIVE.library else "winograd")
    assert choice(64, 3, 2, torch.float64) == "winograd"
    assert choice(64, 3, 1) == "direct"  # a plain convolution: nothing to save
    assert choice(1, 5, 2) == (
        "native" if NATIVE.library else "direct"
    )  # in torch calls, the transforms take all the time
    assert choice(1, 5, 2, torch.float64) == "direct"
    assert choice(64, 7, 3) == "direct"  # nine points
    assert choice(64, 3, 2, torch.bfloat16) == ("native" if NATIVE.library else "direct")
    assert choice(64, 3, 2, torch.float16) == "direct"


@pytest.mark.parametrize(
    ("kernel", "size", "tile"),
    [
        ((3, 3), (17, 17), (3, 3)),  # 3 and 4 take as many multiplications
        ((3, 3), (16, 16), (4, 4)),
        ((3, 3), (7, 32), (4, 4)),
        ((3, 3), (3, 2), (3, 2)),  # nothing hangs over
        ((5, 5), (16, 16), (2, 2)),
        ((7, 7), (16, 16), (1, 1)),
        ((1, 3), (1, 18), (1, 6)),
    ],
)
def test_tile_takes_the_fewest_multiplications(
    kernel: tuple[int, int], size: tuple[int, int], tile: tuple[int, int]
) -> None:
    padded = size[0] + kernel[0] - 1, size[1] + kernel[1] - 1
    geometry = choose_tile(kernel, (0, 0), *padded)
    assert geometry.responses == size
    assert geometry.tile == tile


def test_auto_of_plain_and_pooled_convolutions() -> None:
    def choice(channels: int, images: int, size: int, kernel: int = 3, pool: int | None = None) -> str:
        x, weight = torch.empty(images, channels, size, size), torch.empty(64, channels, kernel, kernel)
        geometry: Any = choose_tile((kernel, kernel), (0, 0), size, size)
        if pool is not None:
            pair = {"pool_size": pool, "pool_stride": None, "pool_padding": 0, "ceil_mode": False}
            geometry = PoolGeometry.create(kernel_size=kernel, stride=1, padding=0, **pair)  # type: ignore[arg-type]
        return choose_algorithm("auto", geometry, x, weight, torch.float32)

    native = "native" if NATIVE.library else "direct"
    assert choice(64, 8, 16) == native
    assert choice(64, 8, 16, kernel=1) == "direct"  # nothing to save
    assert choice(64, 8, 16, kernel=7) == "direct"  # too many points
    assert choice(3, 8, 16) == "direct"  # the transforms take all the time
    assert choice(64, 1, 5) == "direct"  # and so does packing the weights
    assert choice(64, 8, 16, pool=2) == ("native" if NATIVE.library else "winograd")
    assert choice(64, 8, 16, pool=1) == "direct"


def test_algorithm_that_cannot_serve_says_why() -> None:
    x, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 4, 4)
    with pytest.raises(ValueError, match=r"'winograd' cannot serve this call: .* at most 8 points .* \(9, 9\)"):
        epitomic_conv2d(x, torch.randn(4, 3, 9, 9), kernel_size=7, pool_size=3, algorithm="winograd")
    with pytest.raises(ValueError, match=r"needs float32, float64 or bfloat16, and the input is torch.float16"):
        epitomic_conv2d(x.half(), weight.half(), kernel_size=3, algorithm="winograd")
