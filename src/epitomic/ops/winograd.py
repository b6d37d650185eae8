"""The kernel in plain torch calls: epitomic matching as a Winograd algorithm.

The epitome plays the data of F(D, W) and the patch plays the filter. With n = V*V points,

    U = (B^T (x) B^T) epitomes    n x K x C      once a call
    X = (G (x) G) patches         n x P x C      one GEMM over gathered patches
    M = X @ U^T                   n x P x K      n batched GEMMs: all the work
    Y = (A^T (x) A^T) M         D*D x P x K      one GEMM
    y, p = max over D*D             P x K

and the backward pass is the transposes of the same maps: dy goes to its winner, then A, U and X, G^T, B. Only x, the
epitomes, the uint8 winners, and y where there is a gain, live between the two. Patches come in chunks and epitomes in
groups, so that nothing of size n or D*D outlives a workspace of fixed size, which is the call's own: calls may overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Pair
from epitomic.ops.filters import patch_means
from epitomic.ops.operands import Gradients, Operands
from epitomic.ops.transforms import Transforms, plane_transforms

# What a call may hold besides its results: U and dU of a group of epitomes, and the buffers of a chunk of patches. With
# fewer patches the overhead of the calls shows, with more the caches miss (docs/performance.md).
WORKSPACE_FLOATS = 6_500_000
CHUNK_PATCHES = 384


def forward(operands: Operands) -> tuple[Tensor, Tensor]:
    """See `matching.Kernel.forward`."""
    x, epitomes, bias, gain, kernel, stride = operands
    call = _Call(x, epitomes, kernel, stride, transformed=1)
    n, d2, work = call.points, call.positions, call.work
    means = None if gain is None else patch_means(x, kernel, stride)
    y = x.new_empty(call.grid.numel(), len(epitomes))  # (P, K), all patches
    positions = torch.empty_like(y, dtype=torch.uint8)
    for group in call.groups():
        u_t = call.transform_epitomes(epitomes[group]).transpose(1, 2)  # (n, C, K)
        k = u_t.shape[2]
        for chunk in call.chunks(k):
            p = chunk.size
            xs = call.transform_patches(chunk, means)  # (n, P, C)
            m = torch.bmm(xs, u_t, out=work.take("m", n, p, k))
            responses = work.take("responses", d2, p, k)
            torch.mm(call.to.output, m.view(n, -1), out=responses.view(d2, -1))
            if gain is not None:
                responses.mul_(_per_position(gain[group]))
            best = y[chunk.flat, group]
            _maximum(work, responses, best, positions[chunk.flat, group])
            if bias is not None:
                best.add_(bias[group])
    shape = (*call.grid, len(epitomes))
    return y.view(shape), positions.view(shape)


def backward(dy: Tensor, y: Tensor | None, positions: Tensor, operands: Operands, needs: Sequence[bool]) -> Gradients:
    """See `matching.Kernel.backward`."""
    x, epitomes, bias, gain, kernel, stride = operands
    need_x, need_epitomes, need_bias, need_gain = needs
    call = _Call(x, epitomes, kernel, stride, transformed=need_x + need_epitomes)
    if need_x and need_epitomes and len(list(call.groups())) > 1:  # a pass for U and one for dU take fewer groups
        dx, _, dbias, dgain = backward(dy, y, positions, operands, (True, False, need_bias, need_gain))
        return dx, backward(dy, y, positions, operands, (False, True, False, False))[1], dbias, dgain

    n, d2, c, work = call.points, call.positions, x.shape[3], call.work
    dy, positions = dy.view(-1, len(epitomes)), positions.view(-1, len(epitomes))  # (P, K), all patches
    fold = _Fold(x, call.grid, kernel, stride) if need_x else None
    depitomes = torch.empty_like(epitomes) if need_epitomes else None
    dgain = torch.zeros_like(gain) if need_gain and gain is not None else None
    means = None if gain is None else patch_means(x, kernel, stride)
    dmeans = torch.zeros_like(means) if means is not None else None  # mean of each patch's gradient
    output_t, patch_t = call.to.output.t().contiguous(), call.to.patch.t().contiguous()

    for group in call.groups() if any((need_x, need_epitomes, need_gain)) else ():
        k = len(epitomes[group])
        u = call.transform_epitomes(epitomes[group]) if need_x else epitomes  # (n, K, C)
        du = x.new_zeros(n, k, c) if need_epitomes else None
        filter_means = _filter_means(epitomes[group], kernel) if dmeans is not None else None  # (D*D, K, 1)
        for chunk in call.chunks(k):
            p = chunk.size
            winners = _scatter(work, dy[chunk.flat, group], positions[chunk.flat, group], d2)  # (D*D, P, K)
            if gain is not None:
                if dgain is not None and y is not None:
                    scaled = y.view(-1, len(epitomes))[chunk.flat, group]  # gain times the response
                    scaled = scaled if bias is None else scaled - bias[group]
                    products = torch.mul(winners, scaled, out=work.take("products", d2, p, k))
                    dgain[group] += products.sum(1).t() / gain[group]
                winners.mul_(_per_position(gain[group]))
            dm = work.take("m", n, p, k)
            torch.mm(output_t, winners.view(d2, -1), out=dm.view(n, -1))
            if du is not None:
                xs = call.transform_patches(chunk, means)
                du.baddbmm_(dm.transpose(1, 2), xs)
            if fold is not None:
                dxs = torch.bmm(dm, u, out=work.take("x", n, p, c))
                dpatches = work.take("patches", len(patch_t), p, c)
                torch.mm(patch_t, dxs.view(n, -1), out=dpatches.view(len(patch_t), -1))
                fold.add(dpatches, chunk)
                if dmeans is not None and filter_means is not None:
                    dmeans.view(-1)[chunk.flat] += torch.bmm(winners, filter_means).sum((0, 2))
        if du is not None and depitomes is not None:
            torch.mm(du.view(n, -1).t(), call.to.epitome, out=depitomes[group].view(k * c, n))

    dx = None if fold is None else fold.image()
    if dx is not None and dmeans is not None:
        _subtract_means(dx, dmeans, kernel, stride)
    dbias = dy.sum(0) if need_bias else None
    return dx, depitomes, dbias, dgain


class _Chunk(NamedTuple):
    """Neighbouring patches: some rows of patches of one image, or all of several images."""

    images: slice
    rows: slice
    flat: slice  # the same patches among all of them

    @property
    def size(self) -> int:
        return self.flat.stop - self.flat.start


class _Workspace:
    """Named buffers of one call, reused from chunk to chunk: a fresh large tensor would page-fault every time."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """A dense tensor of this shape on the buffer of this name; what it held is gone."""
        size = math.prod(shape)
        buffer = self.buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self.buffers[name] = self.like.new_empty(size)
        return buffer[:size].view(shape)


class _Call:
    """The sizes, transforms, patches and workspace of one call, and how it is cut into groups and chunks."""

    def __init__(self, x: Tensor, epitomes: Tensor, kernel: Pair, stride: Pair, *, transformed: int) -> None:
        pool = epitomes.shape[2] - kernel[0] + 1, epitomes.shape[3] - kernel[1] + 1
        self.to = Transforms(*(t.to(x.device) for t in plane_transforms(pool, kernel, x.dtype)))
        self.points, self.positions = len(self.to.patch), len(self.to.output)
        # All patches as a view: (N, H, W, C) -> (W, W, N, oh, ow, C).
        self.patches = x.unfold(1, kernel[0], stride[0]).unfold(2, kernel[1], stride[1]).permute(4, 5, 0, 1, 2, 3)
        self.grid = self.patches.shape[2:5]  # (N, oh, ow)
        self.epitomes, self.channels = epitomes.shape[:2]
        self.floats_per_epitome = transformed * self.points * self.channels  # in U, in dU, or in both
        self.work = _Workspace(x)

    def groups(self) -> Iterator[slice]:
        """Cuts the epitomes into equal groups whose U and dU take at most 2/3 of the workspace."""
        size = _equal_parts(self.epitomes, max(1, 2 * WORKSPACE_FLOATS // (3 * max(1, self.floats_per_epitome))))
        for i in range(0, self.epitomes, size):
            yield slice(i, min(i + size, self.epitomes))

    def chunks(self, k: int) -> Iterator[_Chunk]:
        """Cuts the patches into chunks whose patches, X, M and responses, for k epitomes, fit beside U and dU."""
        images, oh, ow = self.grid
        if images * oh * ow == 0:
            return
        n, w2 = self.to.patch.shape
        per_patch = (w2 + n) * self.channels + (n + self.positions) * k
        most = min(CHUNK_PATCHES, (WORKSPACE_FLOATS - self.floats_per_epitome * k) // per_patch)
        rows = max(1, most // ow)
        if rows >= oh:
            size = _equal_parts(images, rows // oh)
            for i in range(0, images, size):
                end = min(i + size, images)
                yield _Chunk(slice(i, end), slice(0, oh), slice(i * oh * ow, end * oh * ow))
        else:
            size = _equal_parts(oh, rows)
            for i in range(images):
                for r in range(0, oh, size):
                    end = min(r + size, oh)
                    yield _Chunk(slice(i, i + 1), slice(r, end), slice((i * oh + r) * ow, (i * oh + end) * ow))

    def transform_epitomes(self, epitomes: Tensor) -> Tensor:
        """U, (n, K, C)."""
        k, c = epitomes.shape[:2]
        return (self.to.epitome @ epitomes.reshape(k * c, -1).t()).view(-1, k, c)

    def transform_patches(self, chunk: _Chunk, means: Tensor | None) -> Tensor:
        """X, (n, P, C), of the patches less their means (N, oh, ow): x^T (w - mean w) = (x - mean x)^T w."""
        gathered = self.patches[:, :, chunk.images, chunk.rows]  # (W, W, N, rows, ow, C)
        n, w2 = self.to.patch.shape
        patches = self.work.take("patches", w2, chunk.size, self.channels)
        if means is None:
            patches.view(gathered.shape).copy_(gathered)
        else:
            torch.sub(gathered, means[chunk.images, chunk.rows, :, None], out=patches.view(gathered.shape))
        xs = self.work.take("x", n, chunk.size, self.channels)
        torch.mm(self.to.patch, patches.view(w2, -1), out=xs.view(n, -1))
        return xs


def _equal_parts(total: int, most: int) -> int:
    """Size of the parts, at most ``most``, that cut ``total`` evenly."""
    return -(-total // -(-total // most))


def _per_position(gain: Tensor) -> Tensor:
    """(K, D*D) -> (D*D, 1, K)."""
    return gain.t().contiguous().unsqueeze(1)


def _filter_means(epitomes: Tensor, kernel: Pair) -> Tensor:
    """Mean of each filter: (K, C, V, V) -> (D*D, K, 1)."""
    return F.avg_pool2d(epitomes.mean(1, keepdim=True), kernel, stride=1).flatten(1).t().unsqueeze(2)


def _subtract_means(dx: Tensor, dmeans: Tensor, kernel: Pair, stride: Pair) -> None:
    """Takes the mean of each patch's gradient, (N, oh, ow), from all of its pixels: centring is its own transpose."""
    spread = F.conv_transpose2d(dmeans.unsqueeze(1), dmeans.new_ones(1, 1, *kernel), stride=stride)  # (N, 1, h, w)
    dx[:, : spread.shape[2], : spread.shape[3]] -= spread.permute(0, 2, 3, 1)


def _maximum(work: _Workspace, responses: Tensor, best: Tensor, where: Tensor) -> None:
    """Maximum and its first position over the leading dimension, into ``best`` and ``where``; NaN wins.

    Overwrites ``responses``. In floats throughout: torch's comparisons into booleans and bytes are not vectorised.
    """
    d2 = len(responses)
    torch.amax(responses, 0, out=best)
    if d2 == 1:
        where.zero_()
        return
    ramp = torch.arange(d2, dtype=best.dtype, device=best.device).view(d2, 1, 1)
    responses.ne_(best)
    torch.add(ramp, responses, alpha=d2, out=responses)  # p where the maximum is, at least d2 elsewhere
    first = torch.amin(responses, 0, out=work.take("first", *best.shape))
    found = torch.lt(first, d2, out=work.take("found", *best.shape))  # NaN equals nothing: its position is 0
    where.copy_(first.mul_(found))


def _scatter(work: _Workspace, d: Tensor, where: Tensor, d2: int) -> Tensor:
    """Each gradient in the plane of its winner, zero elsewhere: (D*D, P, K)."""
    winners = work.take("y", d2, *d.shape)
    ramp = torch.arange(d2, dtype=d.dtype, device=d.device).view(d2, 1, 1)
    torch.eq(work.take("first", *d.shape).copy_(where), ramp, out=winners)
    return winners.mul_(d)


class _Fold:
    """Adds patch gradients back to where the patches were read from.

    Blocks of ``stride`` x ``stride`` pixels of neighbouring patches do not overlap: a patch is a few such blocks, and
    each of them takes one addition for all patches.
    """

    def __init__(self, x: Tensor, grid: Sequence[int], kernel: Pair, stride: Pair) -> None:
        self.size, self.kernel, self.stride, self.width = x.shape, kernel, stride, grid[2]
        blocks = [o - 1 - (-w // s) for o, w, s in zip(grid[1:], kernel, stride, strict=True)]
        n, h, w, c = x.shape
        h, w = max(h, blocks[0] * stride[0]), max(w, blocks[1] * stride[1])
        # In the format of x, so that the sum need not be copied to it.
        self.blocks = x.new_zeros(n, h, w, c) if x.is_contiguous() else x.new_zeros(n, c, h, w).permute(0, 2, 3, 1)

    def add(self, dpatches: Tensor, chunk: _Chunk) -> None:
        """Adds (W*W, P, C) gradients of a chunk of patches."""
        (wh, ww), (sh, sw) = self.kernel, self.stride
        for top in range(0, wh, sh):
            for left in range(0, ww, sw):
                self._add_block(dpatches, chunk, slice(top, min(top + sh, wh)), slice(left, min(left + sw, ww)))

    def _add_block(self, dpatches: Tensor, chunk: _Chunk, ys: slice, xs: slice) -> None:
        (sh, sw), (ow, c) = self.stride, (self.width, self.size[3])
        r = chunk.rows.stop - chunk.rows.start
        grads = dpatches.view(*self.kernel, -1, r, ow, c)[ys, xs]  # (bh, bw, n, r, ow, C)
        first = chunk.rows.start * sh + ys.start
        into = self.blocks[chunk.images, first : first + r * sh, xs.start : xs.start + ow * sw]
        into = into.unflatten(2, (ow, sw)).unflatten(1, (r, sh))[:, :, : len(grads), :, : grads.shape[1]]
        into += grads.permute(2, 3, 0, 4, 1, 5)  # (n, r, bh, ow, bw, C)

    def image(self) -> Tensor:
        """The sum, (N, H, W, C)."""
        image = self.blocks[:, : self.size[1], : self.size[2]]
        return image.contiguous() if self.blocks.is_contiguous() else image
