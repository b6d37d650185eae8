"""How long a training step takes on GPUs that are not here, worked out from operations and bytes. Nothing is measured.

The fused kernels are counted launch by launch: the operations of all tiles, those of masked elements included, and each
tensor's bytes once. The other algorithms follow the formulas of `ops.triton.rule`. Traffic between caches and
multiprocessors is counted, but not timed. It needs Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from epitomic.bench.gpu_launches import LAYERS, PRECISIONS, Planned, allow_tf32, plan
from epitomic.geometry import PoolGeometry
from epitomic.ops.triton.counts import count, count_bytes
from epitomic.ops.triton.rule import GPUS, Gpu, Work

MODELLED = ("paper layer 2", "paper layer 6")


@dataclass(frozen=True)
class Modelled:
    """The times of one layer on one GPU, in milliseconds of a training step.

    Attributes:
        layer: Name of the layer.
        precision: How it computes.
        gpu: The GPU.
        pair: cuDNN's convolution and max-pooling of equal output.
        fused: ``"triton"``, by counting its launches.
        winograd: ``"triton_winograd"``.
        direct: ``"direct"``.
        cache_gigabytes: What the fused kernels load from caches and memory.
    """

    layer: str
    precision: str
    gpu: str
    pair: float
    fused: float
    winograd: float
    direct: float
    cache_gigabytes: float


def model(layer_name: str, precision: str, gpu_name: str) -> Modelled:
    """Works out one line of the table."""
    layer, gpu = LAYERS[layer_name], GPUS[gpu_name]
    dtype, tf32 = PRECISIONS[precision]
    geometry: Any = layer.geometry
    planned = plan(layer, "triton", precision)
    pooled = PoolGeometry.create(
        kernel_size=geometry.kernel,
        pool_size=geometry.pool,
        stride=1,
        padding=0,
        pool_stride=geometry.stride,
        pool_padding=0,
        ceil_mode=True,
    )
    with allow_tf32(tf32):
        epitomes = Work.of(geometry, layer.x, layer.weight, dtype)
        pair = Work.of(pooled, layer.x, (layer.weight[0], layer.weight[1], *geometry.kernel), dtype)
        kind = "half" if dtype.itemsize == 2 else "tf32" if tf32 else "ieee"
        fused = sum(_launch_seconds(one, kind, gpu) for one in planned)
        seconds = {
            "pair": pair.seconds("direct", gpu),
            "fused": fused,
            "winograd": epitomes.seconds("triton_winograd", gpu),
            "direct": epitomes.seconds("direct", gpu),
        }
    loaded = sum(count_bytes(p.launch, [t.element_size() for t in p.tensors])[0] for p in planned)
    milliseconds = {name: 1e3 * value for name, value in seconds.items()}
    return Modelled(layer_name, precision, gpu_name, **milliseconds, cache_gigabytes=loaded / 1e9)


def _launch_seconds(planned: Planned, kind: str, gpu: Gpu) -> float:
    tensors = {id(t): t for t in planned.tensors}.values()
    return gpu.seconds(kind, count(planned.launch).operations, sum(t.numel() * t.element_size() for t in tensors))
