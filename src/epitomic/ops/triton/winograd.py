"""``algorithm="triton_winograd"``: the Winograd algorithm of `ops.winograd`, with its transforms in Triton.

    X = R patches              one launch, patches are never stored
    M = X @ U^T                ``torch.bmm``: all the work
    y, p = max of A^T M A      one launch

The backward pass has the transposes: dy goes to dM in one launch, ``torch.bmm`` makes dU and dX, and one launch gathers
the pixels' gradients from dX. Images come in chunks whose buffers fit a workspace of fixed size, made for a GPU's
memory, not for a CPU's cache. Sums have a fixed order.

Sums are in float32. In half precision, X, U, dM and dX are rounded to it where there are few points per axis. The
transforms of many points would lose too much, so there they stay in float32. Those of bfloat16 are then multiplied in
TF32 by a kernel of our own, whatever torch's flags are for float32, and those of float16 strictly (`rule`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.ops.filters import patch_means
from epitomic.ops.operands import Gradients, Operands
from epitomic.ops.transforms import axis_transforms, plane_transforms
from epitomic.ops.triton import fused, launches, winograd_kernels
from epitomic.ops.triton.fused import GainGradient, by_position
from epitomic.ops.triton.launches import Launch, Sizes
from epitomic.ops.triton.rule import kind_of_point_products, transformed_dtype
from epitomic.ops.triton.served import MAX_ELEMENTS
from epitomic.ops.workspace import workspace_bytes


def forward(operands: Operands) -> tuple[Tensor, Tensor]:
    """See `matching.Kernel.forward`."""
    x, _, bias, gain, _ = operands
    call = _Call(operands)
    if call.too_large:
        return fused.forward(operands)
    y, winners = x.new_empty(operands.output), x.new_empty(operands.output, dtype=torch.uint8)
    if y.numel() == 0:
        return y, winners
    u_t = call.transform_weights().transpose(1, 2)  # (n, C, K)
    gains = y if gain is None else by_position(gain)
    for chunk in call.chunks():
        m = call.multiply(call.transform_patches(chunk), u_t, torch.float32)  # (n, P, K)
        launch = launches.maximum_launch(
            call.sizes, chunk.first, chunk.images, bias=bias is not None, gain=gain is not None
        )
        _run(launch, m, call.output_map, y if bias is None else bias, gains, y, winners)
    return y, winners


def backward(dy: Tensor, y: Tensor | None, positions: Tensor, operands: Operands, needs: Sequence[bool]) -> Gradients:
    """See `matching.Kernel.backward`."""
    x, (k, c, sh, sw) = operands.x, operands.weights.shape
    call = _Call(operands)
    if dy.numel() == 0 or call.too_large:
        return fused.backward(dy, y, positions, operands, needs)
    dbias = dy.sum((0, 1, 2), dtype=torch.float32).to(dy.dtype) if needs[2] else None
    scaled = None
    if operands.gain is not None:
        assert y is not None
        scaled = GainGradient(dy, y, positions, operands)
        dy = scaled.dy
    dx = x.new_empty(x.shape) if needs[0] else None
    u = call.transform_weights() if needs[0] else None  # (n, K, C)
    block_map = call.block_map() if needs[0] else None
    du = None
    for chunk in call.chunks() if needs[0] or needs[1] else ():
        dm = x.new_empty((call.points, chunk.patches, k), dtype=call.dtype)
        _run(launches.products_launch(call.sizes, chunk.first, chunk.images), dy, positions, dm)
        if needs[1]:
            part = call.multiply(dm.transpose(1, 2), call.transform_patches(chunk), torch.float32)  # (n, K, C)
            du = part if du is None else du + part
        if u is not None and dx is not None and block_map is not None:
            dpoints = call.multiply(dm, u, call.dtype)  # (n, P, C)
            _run(launches.pixels_launch(call.sizes, chunk.image, chunk.images), dpoints, block_map, dx)
    dweights = None if du is None else (du.flatten(1).t() @ call.weight_map).view(k, c, sh, sw)
    return (dx, dweights, dbias, None) if scaled is None else scaled.finish(dx, dweights, dbias, centred=True)


class _Chunk(NamedTuple):
    """Some images: the first one, its first patch, their number, and the number of their patches."""

    image: int
    first: int
    images: int
    patches: int


class _Call:
    """The sizes, transforms and chunks of one call."""

    def __init__(self, operands: Operands) -> None:
        x, weights, grid = operands.x, operands.weights, operands.grid
        self.operands, self.sizes = operands, Sizes.of(operands)
        maps = plane_transforms(grid.patch, self.sizes.weight, torch.float32)
        self.weight_map = maps.weight.to(x.device)  # (n, S*S)
        self.points = len(maps.weight)
        rows = axis_transforms(grid.patch[0], self.sizes.weight[0], torch.float32)  # along the height
        self.patch_map, self.output_map = rows.patch.to(x.device), rows.output.t().contiguous().to(x.device)
        widest = max(*grid.patch, *self.sizes.weight)
        self.dtype = transformed_dtype(x.dtype, widest)
        rounded = x.dtype != torch.float32 and kind_of_point_products(x.dtype, widest) == "tf32"
        self.multiply = _multiply_tf32 if rounded else _multiply
        self.means = x if operands.gain is None else patch_means(x, grid.patch, grid.stride)
        # X and dX, M or dM, of one image.
        self.floats = self.points * math.prod(grid.outputs) * (weights.shape[0] + weights.shape[1])
        self.too_large = self.floats >= MAX_ELEMENTS

    def chunks(self) -> Iterator[_Chunk]:
        """Divides the images into chunks whose buffers fit the workspace."""
        per_image = math.prod(self.sizes.grid.outputs)
        step = max(1, workspace_bytes(self.operands.x.device) // (4 * self.floats))
        for image in range(0, self.sizes.images, step):
            images = min(step, self.sizes.images - image)
            yield _Chunk(image, image * per_image, images, images * per_image)

    def transform_weights(self) -> Tensor:
        """Returns U, (n, K, C)."""
        weights = self.operands.weights
        k, c = weights.shape[:2]
        return (self.weight_map @ weights.float().reshape(k * c, -1).t()).view(-1, k, c).to(self.dtype)

    def block_map(self) -> Tensor:
        """Returns the patches' map along the height, (V, P), with zeros up to a multiple of the stride."""
        grid = self.sizes.grid
        matrix = axis_transforms(grid.patch[0], self.sizes.weight[0], torch.float32).patch
        return F.pad(matrix, (0, -grid.patch[0] % grid.stride[0])).to(self.weight_map.device)

    def transform_patches(self, chunk: _Chunk) -> Tensor:
        """Returns X, (n, P, C)."""
        x = self.operands.x
        points = x.new_empty((self.points, chunk.patches, x.shape[3]), dtype=self.dtype)
        centred = self.operands.gain is not None
        _run(
            launches.points_launch(self.sizes, chunk.first, chunk.images, centred=centred),
            x,
            self.patch_map,
            points,
            self.means,
        )
        return points


def _multiply(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the products of two stacks of matrices, summed in float32 and rounded to ``dtype``."""
    if a.dtype == dtype:
        return torch.bmm(a, b)
    if a.device.type == "cpu":  # Triton's interpreter
        return torch.bmm(a.to(dtype), b.to(dtype))
    return torch.bmm(a, b, out_dtype=dtype)


def _multiply_tf32(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the products of two stacks of float32 matrices, multiplied in TF32. Either may be a transposed view."""
    assert a.dtype == b.dtype == dtype == torch.float32
    (n, rows, terms), columns = a.shape, b.shape[2]
    left, right = not a.is_contiguous(), not b.is_contiguous()
    out = a.new_empty((n, rows, columns))
    launch = launches.multiply_launch(n, rows, columns, terms, transposed=(left, right), precision="tf32")
    _run(launch, a.mT if left else a, b.mT if right else b, out)
    return out


def _run(launch: Launch, *tensors: Tensor) -> None:
    fused.run(launch, *tensors, kernels=winograd_kernels)
