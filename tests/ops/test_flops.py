"""FlopCounterMode sees the layers as it sees the convolution and max-pooling that they stand for."""

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from epitomic import EpitomicConv2d, MaxPoolConv2d, WinogradConv2d, convert_, fuse_
from epitomic.ops.library import NATIVE


def count(module: nn.Module, x: Tensor, *, backward: bool = False, input_grad: bool = True) -> int:
    """Returns the operations of one pass."""
    x = x.clone().requires_grad_(input_grad)
    with FlopCounterMode(display=False) as forward:
        y = module(x)
    with FlopCounterMode(display=False) as back:
        y.sum().backward()
    return back.get_total_flops() if backward else forward.get_total_flops()


FAST = [
    "winograd",
    pytest.param("native", marks=pytest.mark.skipif(NATIVE.library is None, reason="no native kernel")),
]


@pytest.mark.parametrize("algorithm", FAST)
@pytest.mark.parametrize(
    ("kernel", "pool", "step", "channels", "inputs"),
    [(3, 2, 1, 8, (34, 34)), (6, 3, 1, 16, (54, 56)), (8, 3, 2, 3, (56, 58)), ((3, 5), (2, 1), 1, 8, (30, 33))],
)
@pytest.mark.parametrize("backward", [False, True])
def test_an_epitomic_layer_counts_as_the_pair(
    kernel: int, pool: int, step: int, channels: int, inputs: tuple[int, int], backward: bool, algorithm: str
) -> None:
    """Equal geometry: filters of one size, D x D positions under a maximum, and as many outputs."""
    layer = EpitomicConv2d(channels, 12, kernel, pool_size=pool, epitome_stride=step, algorithm=algorithm)
    (oh, ow), (dh, dw), (wh, ww) = layer.geometry.output_size(*inputs), layer.pool_size, layer.kernel_size
    x = torch.randn(2, channels, *inputs)
    pair = nn.Sequential(nn.Conv2d(channels, 12, kernel), nn.MaxPool2d(pool))
    seen = torch.randn(2, channels, oh * dh + wh - 1, ow * dw + ww - 1)  # the pair has D x D responses per output
    assert pair(seen).shape == layer(x).shape
    want = count(pair, seen, backward=backward)
    assert want > 0
    assert count(layer, x, backward=backward) == pytest.approx(want, rel=0.01)


@pytest.mark.parametrize("algorithm", FAST)
@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2}, {"pool_stride": 1, "pool_padding": 1}, {}])
@pytest.mark.parametrize("backward", [False, True])
def test_a_max_pooled_layer_counts_as_the_pair(options: dict[str, Any], backward: bool, algorithm: str) -> None:
    layer = MaxPoolConv2d(8, 12, 4, pool_size=3, ceil_mode=True, algorithm=algorithm, **options)
    convolution = nn.Conv2d(8, 12, 4, stride=options.get("stride", 1), padding=options.get("padding", 0))
    pool = nn.MaxPool2d(3, options.get("pool_stride", 3), options.get("pool_padding", 0), ceil_mode=True)
    x = torch.randn(2, 8, 20, 23)
    want = count(nn.Sequential(convolution, pool), x, backward=backward)
    assert count(layer, x, backward=backward) == pytest.approx(want, rel=0.01)


@pytest.mark.parametrize("algorithm", FAST)
@pytest.mark.parametrize("backward", [False, True])
def test_a_plain_convolution_counts_as_conv2d(backward: bool, algorithm: str) -> None:
    x, layer = torch.randn(2, 8, 13, 15), WinogradConv2d(8, 12, 3, padding=1, algorithm=algorithm)
    assert count(layer, x, backward=backward) == count(nn.Conv2d(8, 12, 3, padding=1), x, backward=backward)


@pytest.mark.parametrize("frozen", ["input", "weight"])
def test_frozen_halves_are_not_counted(frozen: str) -> None:
    x, layer = torch.randn(2, 8, 14, 14), EpitomicConv2d(8, 12, 3, algorithm="winograd")
    layer.weight.requires_grad_(frozen != "weight")
    assert count(layer, x, backward=True, input_grad=frozen != "input") == count(layer, x)


def small_vgg() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 64, 10)),
    )


@pytest.mark.parametrize("backward", [False, True])
def test_a_vgg_and_its_twins_count_as_they_should(backward: bool) -> None:
    """Fused, it counts as before. Converted, each filter has a border, so (W + D - 1)^2 stand in for W^2."""
    x, vgg = torch.randn(2, 3, 32, 32), small_vgg()
    fused, converted = copy.deepcopy(vgg), copy.deepcopy(vgg)
    fuse_(fused)
    convert_(converted)
    assert sum(isinstance(m, MaxPoolConv2d) for m in fused.modules()) == 2
    assert sum(isinstance(m, EpitomicConv2d) for m in converted.modules()) == 2
    want = count(vgg, x, backward=backward)
    assert count(fused, x, backward=backward) == want
    pairs = 2 * 2 * (16 * 16 * 9 * 32 * 32 + 16 * 32 * 9 * 16 * 16) * (1 + backward)  # of both pairs
    assert count(converted, x, backward=backward) == pytest.approx(want + pairs * (16 / 9 - 1), rel=0.01)


@pytest.mark.parametrize("backward", [False, True])
def test_a_vgg_and_its_epitomic_twin_count_alike(backward: bool) -> None:
    """The twin has filters of the same size, and an epitomic layer in place of each convolution with its pooling."""
    twin = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), EpitomicConv2d(16, 16, 3, padding=1), nn.ReLU()),
        *(EpitomicConv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 64, 10)),
    )
    x = torch.randn(2, 3, 32, 32)
    assert count(twin, x, backward=backward) == pytest.approx(count(small_vgg(), x, backward=backward), rel=0.01)


@pytest.mark.parametrize("first", ["epitomic", "torch.utils.flop_counter"])
def test_the_order_of_imports_does_not_matter(first: str) -> None:
    """The counter is slow to import, so importing the package alone leaves it out."""
    code = f"""
import sys, {first}
print("torch.utils.flop_counter" in sys.modules)
import epitomic, torch
from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False) as counter:
    epitomic.EpitomicConv2d(1, 1, 2, algorithm="winograd")(torch.zeros(1, 1, 2, 2))
print(counter.get_total_flops())
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == [str(first != "epitomic"), "32"]
