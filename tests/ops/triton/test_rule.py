"""The rule for GPUs, against the table that was worked out by hand for batches of 128 (docs/how-to/gpu.md)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from epitomic.geometry import Geometry, PoolGeometry
from epitomic.ops import choice
from epitomic.ops.transforms import MAX_POINTS
from epitomic.ops.triton import served
from epitomic.ops.triton.rule import ERROR, GPUS, Work, kind_of_point_products, kind_of_products, peaks

LAYERS = {2: (96, 192, 6, 54), 6: (512, 512, 3, 17)}  # channels, outputs, filter, pixels


def work(layer: int, dtype: torch.dtype) -> Work:
    c, k, w, pixels = LAYERS[layer]
    geometry = Geometry.create(kernel_size=w, pool_size=3, stride=None, padding=0, epitome_size=None, epitome_stride=1)
    return Work.of(geometry, (128, c, pixels, pixels), (k, c, w + 2, w + 2), dtype)


@pytest.fixture(autouse=True)
def _tf32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize(
    ("algorithm", "layer", "dtype", "gpu", "milliseconds"),
    [
        ("triton", 2, torch.bfloat16, "A100", 6.5),
        ("triton", 2, torch.float32, "A100", 13.1),
        ("triton", 6, torch.bfloat16, "A100", 2.0),
        ("triton", 6, torch.bfloat16, "H100", 0.63),
        ("triton", 6, torch.float32, "A100", 4.0),
        ("triton_winograd", 2, torch.float32, "A100", 8.2),
        ("triton_winograd", 2, torch.float32, "H100", 4.9),
        ("triton_winograd", 6, torch.bfloat16, "A100", 0.91),
        ("triton_winograd", 6, torch.bfloat16, "H100", 0.40),
        ("triton_winograd", 6, torch.float32, "A100", 1.7),
    ],
)
def test_the_table(algorithm: str, layer: int, dtype: torch.dtype, gpu: str, milliseconds: float) -> None:
    assert 1e3 * work(layer, dtype).seconds(algorithm, GPUS[gpu]) == pytest.approx(milliseconds, rel=0.06)


def test_pooling_that_overlaps_is_left_to_two_calls() -> None:
    """A window of 3 with a stride of 2 has 9 responses for each output, of which 4 are new."""
    pooling = {"pool_padding": 0, "ceil_mode": False}
    for stride, best in ((3, "triton"), (2, "direct")):
        geometry = PoolGeometry.create(kernel_size=5, stride=1, padding=2, pool_size=3, pool_stride=stride, **pooling)  # type: ignore[arg-type]
        sizes = Work.of(geometry, (128, 96, 60, 60), (192, 96, 5, 5), torch.bfloat16)
        assert min(("triton", "direct"), key=lambda name: sizes.seconds(name, GPUS["A100"])) == best


def test_the_rule_chooses_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`meta` stands for a GPU: the rule looks at shapes alone."""
    monkeypatch.setattr(served, "why_no_triton", lambda device: None)

    def chosen(dtype: torch.dtype, *, kernel: int = 3, pool: int = 3, channels: int = 512) -> str:
        geometry = Geometry.create(
            kernel_size=kernel, pool_size=pool, stride=None, padding=0, epitome_size=None, epitome_stride=1
        )
        x = torch.empty(128, channels, 54, 54, device="meta", dtype=dtype)
        weight = torch.empty(channels, channels, *geometry.epitome, device="meta", dtype=dtype)
        return choice.choose_algorithm("auto", geometry, x, weight, dtype)

    assert chosen(torch.bfloat16) == "triton_winograd"
    assert chosen(torch.bfloat16, kernel=6, channels=96) == "triton"  # many points: the transforms are in float32
    assert chosen(torch.float32, kernel=7) == "triton"  # too many points for the transforms
    assert chosen(torch.float64) == "direct"
    assert chosen(torch.bfloat16, pool=1) == "direct"
    monkeypatch.setattr(served, "why_no_triton", lambda device: "it is not there")
    assert chosen(torch.bfloat16) == "direct"


@pytest.mark.parametrize(("capability", "like"), [((8, 6), "A100"), ((9, 0), "H100"), ((12, 0), "H100")])
def test_the_gpu_most_like_this_one(capability: tuple[int, int], like: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)
    peaks.cache_clear()
    try:
        assert peaks(0) is GPUS[like]
    finally:
        peaks.cache_clear()


def test_products_in_half_precision_are_as_precise_as_promised() -> None:
    """By the errors that benchmarks/half_points.py measured."""
    with (Path(__file__).parents[3] / "results" / "gpu" / "half_points.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["points"] for row in rows} == {str(n) for n in range(3, MAX_POINTS + 1)}
    for row in rows:
        dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}[row["dtype"]]
        kind = kind_of_point_products(dtype, int(row["points"]))
        if {"half": row["dtype"], "tf32": "tf32", "ieee": "float32"}[kind] == row["products"]:
            assert max(float(row[name]) for name in ("responses", "input_gradient", "weight_gradient")) <= ERROR, row
    assert kind_of_point_products(torch.bfloat16, 8) == "tf32"
    assert kind_of_point_products(torch.float16, 8) == "ieee"
    assert kind_of_point_products(torch.float32, 8) == kind_of_products(torch.float32)
