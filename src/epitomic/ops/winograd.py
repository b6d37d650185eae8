"""The kernel in torch calls: matching as a Winograd algorithm.

F(D, W) maps its data by B^T and its filter by G. Here the larger one of patch and weights is the data, and the smaller
one is the filter. So R, S below are G, B^T for epitomes (Eq. 2) and B^T, G for filters (Eq. 1). With n = V*V points,

    U = (S (x) S) weights         n x K x C      once per call
    X = (R (x) R) patches         n x P x C      one GEMM over gathered patches
    M = X @ U^T                   n x P x K      n batched GEMMs: all the work
    Y = (A^T (x) A^T) M         D*D x P x K      one GEMM
    y, p = max over D*D             P x K        or all of Y

The backward pass applies the transposes of the same maps: dy goes to its winner, then through A, U and X, R^T, S^T.
Between the two passes only x, the weights and the uint8 winners are kept, and y if there is a gain. Patches come in
chunks and weights in groups, so that all buffers of size n or D*D fit a workspace of fixed size. Each call has its own
workspace, so calls may overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Pair
from epitomic.ops.filters import filter_means, patch_means
from epitomic.ops.operands import Gradients, Grid, Operands
from epitomic.ops.transforms import Transforms, plane_transforms
from epitomic.ops.workspace import workspace_bytes

# The workspace holds U and dU of a group of outputs, and the buffers of a chunk of patches. Smaller chunks spend more
# time on the overhead of torch calls, larger ones on cache misses (docs/performance.md). Both limits are for CPUs. On
# other devices chunks fill the workspace of `workspace_bytes`.
WORKSPACE_FLOATS = 6_500_000
CHUNK_PATCHES = 384


def forward(operands: Operands) -> tuple[Tensor, Tensor]:
    """See `matching.Kernel.forward`."""
    x, weights, bias, gain, grid = operands
    call = _Call(operands, transformed=1)
    n, d2, work = call.points, call.positions, call.work
    means = None if gain is None else patch_means(x, grid.patch, grid.stride)
    y = x.new_empty(math.prod(call.grid), len(weights))  # (P, K), all patches
    positions = torch.empty_like(y, dtype=torch.uint8)
    tiles = _Tiles(operands) if grid.keep_all else None
    for group in call.groups():
        u_t = call.transform_weights(weights[group]).transpose(1, 2)  # (n, C, K)
        k = u_t.shape[2]
        for chunk in call.chunks(k):
            p = chunk.size
            xs = call.transform_patches(chunk, means)  # (n, P, C)
            m = torch.bmm(xs, u_t, out=work.take("m", n, p, k))
            responses = work.take("responses", d2, p, k)
            torch.mm(call.to.output, m.view(n, -1), out=responses.view(d2, -1))
            if tiles is not None:
                tiles.write(chunk, group, responses if bias is None else responses.add_(bias[group]))
                continue
            if gain is not None:
                responses.mul_(_per_position(gain[group]))
            best = y[chunk.flat, group]
            _maximum(work, responses, call.left_out(chunk), best, positions[chunk.flat, group])
            if bias is not None:
                best.add_(bias[group])
    if tiles is not None:
        return tiles.image(), positions.new_empty(operands.winners)
    return y.view(operands.output), positions.view(operands.output)


def backward(dy: Tensor, y: Tensor | None, positions: Tensor, operands: Operands, needs: Sequence[bool]) -> Gradients:
    """See `matching.Kernel.backward`."""
    x, weights, bias, gain, grid = operands
    need_x, need_weights, need_bias, need_gain = needs
    call = _Call(operands, transformed=need_x + need_weights)
    if need_x and need_weights and len(list(call.groups())) > 1:  # one pass for U and one for dU take fewer groups
        dx, _, dbias, dgain = backward(dy, y, positions, operands, (True, False, need_bias, need_gain))
        return dx, backward(dy, y, positions, operands, (False, True, False, False))[1], dbias, dgain

    n, d2, c, work = call.points, call.positions, x.shape[3], call.work
    dbias = dy.sum((0, 1, 2)) if need_bias else None
    tiles = _Tiles(operands, dy) if grid.keep_all else None
    dy, positions = dy.view(-1, len(weights)), positions.view(-1, len(weights))  # (P, K), all patches
    fold = _Fold(call) if need_x else None
    dweights = torch.empty_like(weights, memory_format=torch.contiguous_format) if need_weights else None
    dgain = torch.zeros_like(gain) if need_gain and gain is not None else None
    means = None if gain is None else patch_means(x, grid.patch, grid.stride)
    dmeans = torch.zeros_like(means) if means is not None else None  # mean of each patch's gradient
    output_t, patch_t = call.to.output.t().contiguous(), call.to.patch.t().contiguous()

    for group in call.groups() if any((need_x, need_weights, need_gain)) else ():
        k = len(weights[group])
        u = call.transform_weights(weights[group]) if need_x else weights  # (n, K, C)
        du = x.new_zeros(n, k, c) if need_weights else None
        wmeans = None if dmeans is None else filter_means(weights[group], grid.patch).t().unsqueeze(2)  # (D*D, K, 1)
        for chunk in call.chunks(k):
            p = chunk.size
            if tiles is not None:
                dresponses = tiles.read(chunk, group, work.take("y", d2, p, k))
            else:
                dresponses = _scatter(work, dy[chunk.flat, group], positions[chunk.flat, group], d2)  # (D*D, P, K)
            if gain is not None:
                if dgain is not None and y is not None:
                    scaled = y.view(-1, len(weights))[chunk.flat, group]  # gain times the response
                    scaled = scaled if bias is None else scaled - bias[group]
                    products = torch.mul(dresponses, scaled, out=work.take("products", d2, p, k))
                    dgain[group] += products.sum(1).t() / gain[group]
                dresponses.mul_(_per_position(gain[group]))
            dm = work.take("m", n, p, k)
            torch.mm(output_t, dresponses.view(d2, -1), out=dm.view(n, -1))
            if du is not None:
                xs = call.transform_patches(chunk, means)
                du.baddbmm_(dm.transpose(1, 2), xs)
            if fold is not None:
                dxs = torch.bmm(dm, u, out=work.take("x", n, p, c))
                dpatches = work.take("patches", len(patch_t), p, c)
                torch.mm(patch_t, dxs.view(n, -1), out=dpatches.view(len(patch_t), -1))
                fold.add(dpatches, chunk)
                if dmeans is not None and wmeans is not None:
                    dmeans.view(-1)[chunk.flat] += torch.bmm(dresponses, wmeans).sum((0, 2))
        if du is not None and dweights is not None:
            torch.mm(du.view(n, -1).t(), call.to.weight, out=dweights[group].view(k * c, -1))

    dx = None if fold is None else fold.image()
    if dx is not None and dmeans is not None:
        _subtract_means(dx, dmeans, grid.patch, grid.stride)
    return dx, dweights, dbias, dgain


class _Chunk(NamedTuple):
    """Neighbouring patches: some rows of one image, or all rows of several images."""

    images: slice
    rows: slice
    flat: slice  # the same patches, counted through all images

    @property
    def size(self) -> int:
        return self.flat.stop - self.flat.start


class _Workspace:
    """Named buffers of one call, reused from chunk to chunk. Fresh large tensors would page-fault every time."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """Returns a dense tensor of this shape, with undefined contents, in the buffer of this name."""
        size = math.prod(shape)
        buffer = self.buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self.buffers[name] = self.like.new_empty(size)
        return buffer[:size].view(shape)


class _Call:
    """The sizes, transforms, patches and workspace of one call, and its division into groups and chunks."""

    def __init__(self, operands: Operands, *, transformed: int) -> None:
        x, weights, grid = operands.x, operands.weights, operands.grid
        planes = plane_transforms(grid.patch, (weights.shape[2], weights.shape[3]), x.dtype)
        self.to = Transforms(*(t.to(x.device) for t in planes))
        self.points, self.positions = len(self.to.patch), len(self.to.output)
        self.operands, self.padded = operands, _surround(x, grid)
        # All patches as a view: (N, H, W, C) -> (P, P, N, oh, ow, C).
        (ph, pw), (sh, sw), (oh, ow) = grid.patch, grid.stride, grid.outputs
        self.patches = self.padded.unfold(1, ph, sh).unfold(2, pw, sw)[:, :oh, :ow].permute(4, 5, 0, 1, 2, 3)
        self.grid = operands.patches
        self.outputs, self.channels = weights.shape[:2]
        self.floats_per_output = transformed * self.points * self.channels  # in U, dU or both
        self.work = _Workspace(x)
        on_cpu = x.device.type == "cpu"
        self.floats = WORKSPACE_FLOATS if on_cpu else workspace_bytes(x.device) // x.element_size()
        self.most_patches = CHUNK_PATCHES if on_cpu else self.floats
        self.uncounted = _uncounted(operands)

    def left_out(self, chunk: _Chunk) -> Tensor | None:
        """Returns which responses of the chunk do not count, (D*D, P, 1), or None if all do."""
        if self.uncounted is None:
            return None
        rows = self.uncounted[:, None, chunk.rows].expand(-1, chunk.images.stop - chunk.images.start, -1, -1)
        return rows.reshape(self.positions, chunk.size, 1)

    def groups(self) -> Iterator[slice]:
        """Divides the weights into equal groups whose U and dU take at most 2/3 of the workspace."""
        size = _equal_parts(self.outputs, max(1, 2 * self.floats // (3 * max(1, self.floats_per_output))))
        for i in range(0, self.outputs, size):
            yield slice(i, min(i + size, self.outputs))

    def chunks(self, k: int) -> Iterator[_Chunk]:
        """Divides the patches into chunks. Their buffers, for k outputs, fit the workspace beside U and dU."""
        images, oh, ow = self.grid
        if images * oh * ow == 0:
            return
        n, w2 = self.to.patch.shape
        per_patch = (w2 + n) * self.channels + (n + self.positions) * k
        maximum = min(self.most_patches, (self.floats - self.floats_per_output * k) // per_patch)
        rows = max(1, maximum // ow)
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

    def transform_weights(self, weights: Tensor) -> Tensor:
        """Returns U, (n, K, C)."""
        k, c = weights.shape[:2]
        return (self.to.weight @ weights.reshape(k * c, -1).t()).view(-1, k, c)

    def transform_patches(self, chunk: _Chunk, means: Tensor | None) -> Tensor:
        """Returns X, (n, P, C), of the patches less their means (N, oh, ow)."""
        gathered = self.patches[:, :, chunk.images, chunk.rows]  # (P, P, N, rows, ow, C)
        n, w2 = self.to.patch.shape
        patches = self.work.take("patches", w2, chunk.size, self.channels)
        if means is None:
            patches.view(gathered.shape).copy_(gathered)
        else:
            torch.sub(gathered, means[chunk.images, chunk.rows, :, None], out=patches.view(gathered.shape))
        xs = self.work.take("x", n, chunk.size, self.channels)
        torch.mm(self.to.patch, patches.view(w2, -1), out=xs.view(n, -1))
        return xs


def _equal_parts(total: int, maximum: int) -> int:
    """Returns the size, at most ``maximum``, of parts that divide ``total`` evenly."""
    return -(-total // -(-total // maximum))


def _per_position(gain: Tensor) -> Tensor:
    """Returns the gain by position: (K, D*D) -> (D*D, 1, K)."""
    return gain.t().contiguous().unsqueeze(1)


def _subtract_means(dx: Tensor, dmeans: Tensor, kernel: Pair, stride: Pair) -> None:
    """Subtracts the mean of each patch's gradient, (N, oh, ow), from its pixels: the transpose of centring."""
    spread = F.conv_transpose2d(dmeans.unsqueeze(1), dmeans.new_ones(1, 1, *kernel), stride=stride)  # (N, 1, h, w)
    dx[:, : spread.shape[2], : spread.shape[3]] -= spread.permute(0, 2, 3, 1)


def _surround(x: Tensor, grid: Grid) -> Tensor:
    """Puts zeros around (N, H, W, C) wherever a patch reaches beyond it. Keeps the format."""
    before, after = [], []
    for size, patch, stride, start, count in zip(x.shape[1:3], *grid[:4], strict=True):
        before.append(start)
        after.append(max(0, (count - 1) * stride + patch - start - size))
    if not any((*before, *after)):
        return x
    planes = F.pad(x.permute(0, 3, 1, 2), (before[1], after[1], before[0], after[0]))
    return planes.permute(0, 2, 3, 1)


def _uncounted(operands: Operands) -> Tensor | None:
    """Returns which responses do not count, (D*D, oh, ow), or None if all do."""
    grid, outside = operands.grid, []
    for d, stride, count, skipped, end in zip(operands.pool, grid.stride, grid.outputs, *grid[4:6], strict=True):
        numbers = torch.arange(d)[:, None] + torch.arange(count) * stride - skipped  # (D, count)
        outside.append((numbers < 0) | (numbers >= end))
    rows, columns = outside  # on CPU, so that nothing waits for a GPU
    if not rows.any() and not columns.any():
        return None
    return (rows[:, None, :, None] | columns[None, :, None, :]).flatten(0, 1).to(operands.x.device)


def _maximum(work: _Workspace, responses: Tensor, left_out: Tensor | None, best: Tensor, where: Tensor) -> None:
    """Writes the maximum over the leading dimension and its first position to ``best`` and ``where``. NaN wins.

    It overwrites ``responses``. All is in floats, because torch does not vectorise comparisons into booleans or bytes.
    """
    d2 = len(responses)
    if left_out is not None:
        responses.masked_fill_(left_out, -math.inf)
    torch.amax(responses, 0, out=best)
    if d2 == 1:
        where.zero_()
        return
    ramp = torch.arange(d2, dtype=best.dtype, device=best.device).view(d2, 1, 1)
    responses.ne_(best)
    if left_out is not None:
        responses.masked_fill_(left_out, 1)
    torch.add(ramp, responses, alpha=d2, out=responses)  # p at the maximum, d2 or more elsewhere
    first = torch.amin(responses, 0, out=work.take("first", *best.shape))
    found = torch.lt(first, d2, out=work.take("found", *best.shape))  # NaN equals nothing, so its position is 0
    where.copy_(first.mul_(found))


def _scatter(work: _Workspace, d: Tensor, where: Tensor, d2: int) -> Tensor:
    """Puts each gradient in the plane of its winner, with zeros elsewhere: (D*D, P, K)."""
    winners = work.take("y", d2, *d.shape)
    ramp = torch.arange(d2, dtype=d.dtype, device=d.device).view(d2, 1, 1)
    torch.eq(work.take("first", *d.shape).copy_(where), ramp, out=winners)
    return winners.mul_(d)


class _Tiles:
    """All responses of a kernel that keeps them, as tiles of D x D side by side."""

    def __init__(self, operands: Operands, dy: Tensor | None = None) -> None:
        (self.n, self.oh, self.ow), (self.dh, self.dw) = operands.patches, operands.pool
        self.size = operands.grid.responses
        height, width = self.oh * self.dh, self.ow * self.dw
        if dy is None:
            self.data = operands.x.new_empty(self.n, height, width, len(operands.weights))
        else:
            self.data = F.pad(dy, (0, 0, 0, width - self.size[1], 0, height - self.size[0]))

    def _of(self, chunk: _Chunk, group: slice) -> Tensor:
        tiles = self.data.unflatten(2, (self.ow, self.dw)).unflatten(1, (self.oh, self.dh))  # (N, oh, D, ow, D, K)
        return tiles[chunk.images, chunk.rows, ..., group].permute(2, 4, 0, 1, 3, 5)  # (D, D, N, rows, ow, K)

    def write(self, chunk: _Chunk, group: slice, responses: Tensor) -> None:
        """Writes the responses of a chunk, (D*D, P, K)."""
        tiles = self._of(chunk, group)
        tiles.copy_(responses.view(tiles.shape))

    def read(self, chunk: _Chunk, group: slice, out: Tensor) -> Tensor:
        """Reads the responses of a chunk into ``out``, (D*D, P, K)."""
        tiles = self._of(chunk, group)
        out.view(tiles.shape).copy_(tiles)
        return out

    def image(self) -> Tensor:
        """Returns the responses that count, (N, rows, columns, K)."""
        return self.data[:, : self.size[0], : self.size[1]].contiguous()


class _Fold:
    """Adds the gradients of patches to the pixels that they were read from.

    A patch is made of blocks of ``stride`` x ``stride`` pixels. The same block of all patches never overlaps, so each
    block takes one addition for all patches.
    """

    def __init__(self, call: _Call) -> None:
        x, grid = call.padded, call.operands.grid
        self.kernel, self.stride, self.width = grid.patch, grid.stride, grid.outputs[1]
        (self.top, self.left), (_, self.height, self.breadth, self.channels) = grid.before, call.operands.x.shape
        blocks = [o - 1 - (-w // s) for o, w, s in zip(grid.outputs, grid.patch, grid.stride, strict=True)]
        n, h, w, c = x.shape
        h, w = max(h, blocks[0] * grid.stride[0]), max(w, blocks[1] * grid.stride[1])
        # The sum is made in the format of x, so that it need not be copied.
        planes = not call.operands.x.is_contiguous()
        self.blocks = x.new_zeros(n, c, h, w).permute(0, 2, 3, 1) if planes else x.new_zeros(n, h, w, c)

    def add(self, dpatches: Tensor, chunk: _Chunk) -> None:
        """Adds the gradients of a chunk of patches, (W*W, P, C)."""
        (wh, ww), (sh, sw) = self.kernel, self.stride
        for top in range(0, wh, sh):
            for left in range(0, ww, sw):
                self._add_block(dpatches, chunk, slice(top, min(top + sh, wh)), slice(left, min(left + sw, ww)))

    def _add_block(self, dpatches: Tensor, chunk: _Chunk, ys: slice, xs: slice) -> None:
        (sh, sw), (ow, c) = self.stride, (self.width, self.channels)
        r = chunk.rows.stop - chunk.rows.start
        grads = dpatches.view(*self.kernel, -1, r, ow, c)[ys, xs]  # (bh, bw, n, r, ow, C)
        first = chunk.rows.start * sh + ys.start
        into = self.blocks[chunk.images, first : first + r * sh, xs.start : xs.start + ow * sw]
        into = into.unflatten(2, (ow, sw)).unflatten(1, (r, sh))[:, :, : len(grads), :, : grads.shape[1]]
        into += grads.permute(2, 3, 0, 4, 1, 5)  # (n, r, bh, ow, bw, C)

    def image(self) -> Tensor:
        """Returns the sum, (N, H, W, C)."""
        image = self.blocks[:, self.top : self.top + self.height, self.left : self.left + self.breadth]
        return image.contiguous() if self.blocks.is_contiguous() else image
