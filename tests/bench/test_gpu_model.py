"""The step of layers on GPUs, worked out: against the figures of the design, and against cuDNN's pair."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="the package triton is not installed (extra gpu-dev, Linux x86-64)")

from epitomic.bench.gpu_model import MODELLED, model
from epitomic.ops.triton.rule import GPUS

PAIR = {  # milliseconds that the design worked out by hand for conv2d + max_pool2d by cuDNN
    ("paper layer 2", "bfloat16", "A100"): 6.2,
    ("paper layer 2", "bfloat16", "H100"): 2.0,
    ("paper layer 2", "tf32", "A100"): 12.4,
    ("paper layer 2", "tf32", "H100"): 4.0,
    ("paper layer 6", "bfloat16", "A100"): 2.05,
    ("paper layer 6", "bfloat16", "H100"): 0.66,
    ("paper layer 6", "tf32", "A100"): 4.1,
}


@pytest.mark.parametrize("layer", MODELLED)
@pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
@pytest.mark.parametrize("gpu", GPUS)
def test_the_fused_kernels_take_at_most_a_tenth_more_than_the_pair(layer: str, precision: str, gpu: str) -> None:
    worked_out = model(layer, precision, gpu)
    assert worked_out.fused <= 1.1 * worked_out.pair
    assert worked_out.pair < worked_out.direct
    if (layer, precision, gpu) in PAIR:
        assert worked_out.pair == pytest.approx(PAIR[layer, precision, gpu], rel=0.03)
