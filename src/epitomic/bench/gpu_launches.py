"""Which Triton kernels a training step of a layer launches. Found without a GPU: the meta device computes nothing.

It needs Triton.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from epitomic.geometry import Geometry, PoolGeometry
from epitomic.ops import compute
from epitomic.ops.triton.launches import Launch
from epitomic.ops.triton.served import TRITON


class Layer(NamedTuple):
    """A layer and its input.

    Attributes:
        name: Name in tables.
        geometry: Its sizes.
        x: Shape of the input, (N, C, H, W).
        weight: Shape of the weights.
        normalize: Whether the filters are normalised (Eq. 3).
    """

    name: str
    geometry: Geometry | PoolGeometry
    x: tuple[int, int, int, int]
    weight: tuple[int, int, int, int]
    normalize: bool = False


def _epitomes(
    name: str, channels: int, outputs: int, kernel: int, pool: int, pixels: int, batch: int, **more: Any
) -> Layer:
    step, normalize = more.pop("epitome_stride", 1), more.pop("normalize", False)
    sizes: dict[str, Any] = {"kernel_size": kernel, "pool_size": pool, "stride": more.pop("stride", None)}
    geometry = Geometry.create(**sizes, padding=0, epitome_size=None, epitome_stride=step)
    weight = (outputs, channels, *geometry.epitome)
    return Layer(name, geometry, (batch, channels, pixels, pixels), weight, normalize)


def _pooled(name: str, channels: int, outputs: int, kernel: int, pixels: int, batch: int) -> Layer:
    pooling: dict[str, Any] = {"pool_size": 3, "pool_stride": 2, "pool_padding": 0, "ceil_mode": False}
    geometry = PoolGeometry.create(kernel_size=kernel, stride=1, padding=kernel // 2, **pooling)
    return Layer(name, geometry, (batch, channels, pixels, pixels), (outputs, channels, kernel, kernel))


LAYERS = {
    layer.name: layer
    for layer in (
        _epitomes("paper layer 1", 3, 96, 8, 3, 220, 128, stride=4, epitome_stride=2),
        _epitomes("paper layer 2", 96, 192, 6, 3, 54, 128),
        _epitomes("paper layer 6", 512, 512, 3, 3, 17, 128),
        _epitomes("paper layer 6, normalised", 512, 512, 3, 3, 17, 128, normalize=True),
        _epitomes("3x3, pool 2", 96, 192, 3, 2, 32, 64),
        _epitomes("5x5, pool 4", 24, 40, 5, 4, 36, 16),
        _pooled("5x5, max-pooling 3/2", 96, 192, 5, 27, 128),
        # Channels and outputs that are no whole vectors.
        _epitomes("4x4, pool 3, 23 to 77 channels", 23, 77, 4, 3, 37, 16, stride=2, normalize=True),
        _pooled("3x3, max-pooling 3/2, 65 to 130 channels", 65, 130, 3, 33, 32),
    )
}
PRECISIONS = {  # name -> dtype, and whether float32 is multiplied in TF32
    "float32": (torch.float32, False),
    "tf32": (torch.float32, True),
    "float16": (torch.float16, False),
    "bfloat16": (torch.bfloat16, False),
}


class Planned(NamedTuple):
    """A launch, and the tensors that it would get.

    Attributes:
        launch: Grid, tiles and constants.
        tensors: The kernel's tensors in the order of its arguments, on the meta device.
    """

    launch: Launch
    tensors: tuple[Tensor, ...]


def plan(layer: Layer, algorithm: str, precision: str, *, amd: bool = False) -> list[Planned]:
    """Returns the launches of a training step, in order. Products of whole matrices by ``torch.bmm`` are none.

    Args:
        layer: One of `LAYERS`, or another one.
        algorithm: ``"triton"`` or ``"triton_winograd"``.
        precision: One of `PRECISIONS`.
        amd: Whether the launches are for AMD's GPUs, not for NVIDIA's.
    """
    from epitomic.ops.triton import fused, launches

    assert algorithm in TRITON
    dtype, tf32 = PRECISIONS[precision]
    planned: list[Planned] = []

    def note(launch: Launch, *tensors: Tensor, kernels: object = None) -> None:
        planned.append(Planned(launch, tensors))

    def tensor(*shape: int) -> Tensor:
        return torch.empty(shape, device="meta", dtype=dtype, requires_grad=True)

    geometry = layer.geometry
    outputs = layer.weight[0] * (geometry.outputs[0] * geometry.outputs[1] if isinstance(geometry, Geometry) else 1)
    x, weight, bias = tensor(*layer.x), tensor(*layer.weight), tensor(outputs)
    build = mock.patch.object(launches, "on_amd", return_value=amd)
    with build, mock.patch.object(fused, "run", note), allow_tf32(tf32), torch.enable_grad():
        last = x.to(memory_format=torch.channels_last)
        if isinstance(geometry, Geometry):
            y, _ = compute.epitomic(algorithm, last, weight, bias, geometry, layer.normalize, 0.01)
        else:
            groups = layer.x[1] // layer.weight[1]
            y, _ = compute.max_pool(algorithm, last, weight, bias, geometry, groups, layer.normalize, 0.01, True)
        torch.autograd.grad(y, (x, weight, bias), torch.ones_like(y))
    return planned


@contextlib.contextmanager
def allow_tf32(allowed: bool) -> Iterator[None]:
    """Multiplies float32 in TF32, or strictly, inside the block."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
