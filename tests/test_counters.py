"""What the counters of other libraries say about the layer. Multiply-adds of its definition: D D W W C K a patch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from epitomic import EpitomicConv2d

IMAGE = (3, 33, 33)


def small_network() -> nn.Sequential:
    return nn.Sequential(EpitomicConv2d(3, 16, 4, pool_size=2, bias=False), nn.Flatten()).eval()


def definition(layer: EpitomicConv2d, height: int, width: int) -> int:
    """Multiply-adds for one image."""
    g = layer.geometry
    patches = math.prod(g.output_size(height, width))
    return patches * math.prod(g.pool) * math.prod(g.kernel) * layer.weight.shape[1] * layer.out_channels


def test_fvcore_counts_the_definition() -> None:
    counter = pytest.importorskip("fvcore.nn", reason="fvcore is not installed")
    model = small_network()
    counted = counter.FlopCountAnalysis(model, torch.zeros(1, *IMAGE))
    counted.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    assert counted.by_operator()["conv"] == definition(model[0], 33, 33)  # type: ignore[arg-type]


def test_ptflops_counts_the_definition_with_a_hook() -> None:
    ptflops = pytest.importorskip("ptflops", reason="ptflops is not installed")

    def hook(layer: Any, inputs: Any, output: Any) -> None:
        layer.__flops__ += len(inputs[0]) * definition(layer, *inputs[0].shape[-2:])

    model = small_network()
    model(torch.zeros(1, *IMAGE))  # torch imports its compiler at the first call, which fails inside ptflops
    macs, _ = ptflops.get_model_complexity_info(
        model,
        IMAGE,
        backend="pytorch",
        as_strings=False,
        print_per_layer_stat=False,
        custom_modules_hooks={EpitomicConv2d: hook},
    )
    assert macs == definition(model[0], 33, 33)  # type: ignore[arg-type]


def test_torchinfo_counts_the_epitomes_and_not_the_filters() -> None:
    """It has no interface for layers that it does not know: it takes each weight for one multiply-add."""
    torchinfo = pytest.importorskip("torchinfo", reason="torchinfo is not installed")
    model = small_network()
    layer: Any = model[0]
    counted = torchinfo.summary(model, (1, *IMAGE), verbose=0)
    assert counted.total_params == layer.weight.numel()
    assert counted.total_mult_adds == layer.weight.numel() * math.prod(layer.geometry.output_size(33, 33))
    assert counted.total_mult_adds < definition(layer, 33, 33)
