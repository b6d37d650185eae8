"""Which algorithm ``"auto"`` takes on a GPU where nothing was measured: a rule by operations and bytes.

The rule works out a training step, forward and backward, of a layer with P patches, C channels and K outputs. b is the
size of a number in bytes, n the number of Winograd points. Operations run at `OPERATIONS_SHARE` of a GPU's peak, bytes
move at `BANDWIDTH_SHARE` of its memory's.

- ``"triton"``: three products of 2 P C W^2 D^2 K operations each.
- ``"triton_winograd"``: three products of 2 n P C K operations each. Each takes as long as these operations or as its
  bytes: n P (C b + 4 K) forward, n P (C + K) b each backward. The transforms move n P (3 C b + K (4 + b)) bytes more.
- ``"direct"`` convolution and max-pooling: three products of 2 R C W^2 K operations with R responses, whose bytes the
  pooling and its backward pass move once each.
- ``"direct"`` with epitomes: the operations of ``"triton"``, and the bytes of D^2 convolutions. 6.5 times they move all
  P D^2 K responses, or their gradients, and 3 times the gradient of the I input pixels.

Float32 is multiplied in TF32 where torch allows it: ``torch.backends.cuda.matmul.allow_tf32`` holds for our kernels,
``torch.backends.cudnn.allow_tf32`` for ``"direct"``. In torch, the first is off and the second is on at the start.

All this is worked out, not measured.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch

from epitomic.geometry import Geometry, PoolGeometry

OPERATIONS_SHARE = 0.65
BANDWIDTH_SHARE = 0.85
HALF_POINTS = 5  # points per axis up to which half precision is precise enough for the transforms
ERROR = 6.0  # largest error of Winograd in half precision, counted in roundings of the result


class Gpu(NamedTuple):
    """A GPU's peaks, from its maker.

    Attributes:
        operations: Operations per second by kind of product: ``"half"``, ``"tf32"`` or ``"ieee"`` float32.
        bandwidth: Bytes per second.
    """

    operations: dict[str, float]
    bandwidth: float

    def seconds(self, kind: str, operations: float, traffic: float) -> float:
        """The time of a launch: that of its operations or that of its bytes, whichever is longer."""
        compute = operations / (OPERATIONS_SHARE * self.operations[kind])
        return max(compute, traffic / (BANDWIDTH_SHARE * self.bandwidth))


GPUS = {
    "A100": Gpu({"half": 312e12, "tf32": 156e12, "ieee": 19.5e12}, 2.039e12),
    "H100": Gpu({"half": 989e12, "tf32": 494.7e12, "ieee": 67e12}, 3.35e12),
}


class Work(NamedTuple):
    """The sizes of a layer that its cost depends on.

    Attributes:
        patches: P, over all images.
        channels: C of one group.
        groups: Groups of channels.
        outputs: K, over all groups.
        taps: W * W.
        positions: D * D.
        points: Points of the Winograd transforms, n.
        widest: The larger number of points of both axes.
        blocks: Pixels that become channels before the Winograd transforms, e * e.
        responses: R, over all images, of a convolution before its pooling. 0 for epitomes.
        pixels: I, pixels of the input over all images.
        dtype: The dtype to compute in.
    """

    patches: int
    channels: int
    groups: int
    outputs: int
    taps: int
    positions: int
    points: int
    widest: int
    blocks: int
    responses: int
    pixels: int
    dtype: torch.dtype

    @classmethod
    def of(
        cls, geometry: Geometry | PoolGeometry, input: tuple[int, ...], weight: tuple[int, ...], dtype: torch.dtype
    ) -> Work:
        """Returns the sizes of a layer with input of shape (..., C, H, W) and weights of (K, C / groups, ...)."""
        images, (height, width) = math.prod(input[:-3]), input[-2:]
        outputs, responses, step = weight[0], 0, geometry.stride
        if isinstance(geometry, Geometry):
            outputs, step = outputs * math.prod(geometry.outputs), geometry.epitome_stride
        else:
            responses = images * math.prod(geometry.responses(height, width))
        return cls(
            patches=images * math.prod(geometry.output_size(height, width)),
            channels=weight[1],
            groups=input[-3] // weight[1],
            outputs=outputs,
            taps=math.prod(geometry.kernel),
            positions=math.prod(geometry.pool),
            points=math.prod(geometry.points),
            widest=max(geometry.points),
            blocks=math.prod(step),
            responses=responses,
            pixels=images * height * width,
            dtype=dtype,
        )

    def seconds(self, algorithm: str, gpu: Gpu) -> float:
        """The time of a training step, worked out."""
        return {"triton": self._fused, "triton_winograd": self._winograd, "direct": self._direct}[algorithm](gpu)

    def _fused(self, gpu: Gpu) -> float:
        operations = 2 * self.patches * self.channels * self.taps * self.positions * self.outputs
        return 3 * gpu.seconds(kind_of_products(self.dtype), operations, 0)

    def _winograd(self, gpu: Gpu) -> float:
        size, kind = (
            transformed_dtype(self.dtype, self.widest).itemsize,
            kind_of_point_products(self.dtype, self.widest),
        )
        rows = self.points * self.patches
        channels = self.channels * self.blocks
        read, written = rows * channels * self.groups, rows * self.outputs  # numbers in X and M
        operations = 2 * rows * channels * self.outputs
        forward = gpu.seconds(kind, operations, read * size + written * 4)
        backward = 2 * gpu.seconds(kind, operations, (read + written) * size)
        return forward + backward + gpu.seconds(kind, 0, 3 * read * size + written * (4 + size))

    def _direct(self, gpu: Gpu) -> float:
        kind, size = kind_of_convolutions(self.dtype), self.dtype.itemsize
        if not self.responses:
            responses = self.patches * self.positions * self.outputs
            operations = 2 * responses * self.channels * self.taps
            gradients = self.positions * self.pixels * self.channels * self.groups
            traffic = 6.5 * responses + 3 * gradients
            return 3 * gpu.seconds(kind, operations, 0) + gpu.seconds(kind, 0, traffic * size)
        operations = 2 * self.responses * self.channels * self.taps * self.outputs
        pooling = (self.responses + self.patches) * self.outputs * size + 8 * self.patches * self.outputs
        return 3 * gpu.seconds(kind, operations, self.responses * self.outputs * size) + 2 * gpu.seconds(
            kind, 0, pooling
        )


def kind_of_products(dtype: torch.dtype) -> str:
    """Returns how matrices are multiplied: ``"half"``, ``"tf32"`` where torch allows it, or else ``"ieee"``."""
    if dtype != torch.float32:
        return "half"
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


def kind_of_convolutions(dtype: torch.dtype) -> str:
    """Returns how cuDNN multiplies: as `kind_of_products` says, by the flag for convolutions."""
    if dtype != torch.float32:
        return "half"
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"


def transformed_dtype(dtype: torch.dtype, points: int) -> torch.dtype:
    """Returns the dtype of Winograd's transformed tensors for so many points per axis.

    It is that of the input, or float32 where half precision would lose too much.
    """
    return dtype if points <= HALF_POINTS else torch.float32


def kind_of_point_products(dtype: torch.dtype, points: int) -> str:
    """Returns how Winograd's transformed tensors are multiplied, for input of a dtype and so many points per axis.

    The error, as a root mean square, stays below `ERROR` times that of rounding the exact result to the dtype
    (benchmarks/half_points.py). So float32 transforms of bfloat16 input are multiplied in TF32, and those of float16
    strictly.
    """
    if transformed_dtype(dtype, points) == torch.float32 and dtype != torch.float32:
        return "tf32" if dtype == torch.bfloat16 else "ieee"
    return kind_of_products(dtype)


@functools.cache
def peaks(index: int | None) -> Gpu:
    """Returns the peaks of the GPU in `GPUS` that is most like this one.

    Only the ratio of operations to bytes counts. GPUs since NVIDIA's Hopper and AMD's MI300 have more operations to a
    byte than those before. A GPU that is only traced for counts as an A100.
    """
    if not torch.cuda.is_available():
        return GPUS["A100"]
    return GPUS["H100" if torch.cuda.get_device_capability(index) >= (9, 0) else "A100"]
