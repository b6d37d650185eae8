"""The kernel in plain torch calls: epitomic matching as a Winograd algorithm.

The epitome plays the data of F(D, W) and the patch plays the filter. With n = V*V points,

    U = (B^T (x) B^T) epitomes    n x C x K      once a call
    X = (G (x) G) patches         n x P x C      one GEMM over gathered patches
    M = X @ U                     n x P x K      n batched GEMMs: all the work
    Y = (A^T (x) A^T) M         D*D x P x K      one GEMM
    y, p = max over D*D             P x K

and the backward pass is the transposes of the same maps: dy goes to its winner, then A, U^T and X^T, G^T, B. Only x,
the epitomes and the uint8 winners live between the two. The patches come in chunks, so that nothing of size n or D*D
outlives a workspace of fixed size, which belongs to the call: calls may overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from epitomic.geometry import Pair
from epitomic.ops.transforms import plane_transforms

# Floats in a chunk's X and M together: below it the calls' overhead shows, above it the cache misses.
WORKSPACE = 2**21


def forward(
    x: Tensor, epitomes: Tensor, bias: Tensor | None, gain: Tensor | None, kernel: Pair, stride: Pair
) -> tuple[Tensor, Tensor]:
    """See `matching.Kernel.forward`."""
    to = _transforms(x, epitomes, kernel)
    n, d2 = len(to.patch), len(to.output)
    k, c = epitomes.shape[:2]
    patches = _patch_view(x, kernel, stride)  # (W, W, N, oh, ow, C)
    y = x.new_empty(*patches.shape[2:5], k)  # (N, oh, ow, K)
    positions = torch.empty_like(y, dtype=torch.uint8)
    u = _transform_epitomes(to.epitome, epitomes)  # (n, C, K)
    gain = None if gain is None else gain.t().contiguous().unsqueeze(1)  # (D*D, 1, K)

    chunks = list(_chunks(patches.shape[2:5], n * (c + k)))
    work = _Workspace(x)
    for images, rows in chunks:
        chunk = patches[:, :, images, rows]
        p = chunk.shape[2:5].numel()
        xs = _transform_patches(work, to.patch, chunk, centred=gain is not None)  # (n, P, C)
        m = torch.bmm(xs, u, out=work.take("m", n, p, k))
        responses = work.take("y", d2, p, k)
        torch.mm(to.output, m.view(n, -1), out=responses.view(d2, -1))
        if gain is not None:
            responses.mul_(gain)
        best, where = y[images, rows].view(p, k), positions[images, rows].view(p, k)
        _maximum(work, responses, best, where)
        if bias is not None:
            best.add_(bias)
    return y, positions


def backward(
    dy: Tensor,
    y: Tensor | None,
    positions: Tensor,
    x: Tensor,
    epitomes: Tensor,
    bias: Tensor | None,
    gain: Tensor | None,
    kernel: Pair,
    stride: Pair,
    needs: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """See `matching.Kernel.backward`."""
    to = _transforms(x, epitomes, kernel)
    (n, w2), d2 = to.patch.shape, to.output.shape[0]
    k, c = epitomes.shape[:2]
    need_x, need_epitomes, need_bias, need_gain = needs
    patches = _patch_view(x, kernel, stride)
    dx = torch.zeros_like(x) if need_x else None
    du = x.new_zeros(n, c, k) if need_epitomes else None
    dgain = x.new_zeros(d2, k) if need_gain else None
    u_t = _transform_epitomes(to.epitome, epitomes).transpose(1, 2) if need_x else None  # (n, K, C)
    gain_t = None if gain is None else gain.t().contiguous().unsqueeze(1)  # (D*D, 1, K)
    to_output_t, to_patch_t = to.output.t().contiguous(), to.patch.t().contiguous()

    work = _Workspace(x)
    for images, rows in _chunks(patches.shape[2:5], n * (c + k)):
        if not (need_x or need_epitomes or need_gain):
            break
        chunk = patches[:, :, images, rows]
        p = chunk.shape[2:5].numel()
        d, where = dy[images, rows].view(p, k), positions[images, rows].view(p, k)
        winners = _scatter(work, d, where, d2)  # (D*D, P, K)
        if dgain is not None:
            assert y is not None
            scaled = y[images, rows].view(p, k) if bias is None else y[images, rows].view(p, k) - bias
            dgain += (winners * scaled).sum(1)  # gain times the gradient: divided out at the end
        if gain_t is not None:
            winners.mul_(gain_t)
        dm = work.take("m", n, p, k)
        torch.mm(to_output_t, winners.view(d2, -1), out=dm.view(n, -1))
        if du is not None:
            xs = _transform_patches(work, to.patch, chunk, centred=gain is not None)
            du.baddbmm_(xs.transpose(1, 2), dm)
        if dx is not None:
            dxs = torch.bmm(dm, u_t, out=work.take("x", n, p, c))
            dpatches = work.take("patches", w2, p, c)
            torch.mm(to_patch_t, dxs.view(n, -1), out=dpatches.view(w2, -1))
            if gain is not None:
                dpatches.sub_(dpatches.mean((0, 2), keepdim=True))
            _fold(dx[images], dpatches.view(*kernel, *chunk.shape[2:]), rows, stride)

    depitomes = None
    if du is not None:
        plane = to.epitome.t() @ du.view(n, -1)  # (V*V, C*K)
        depitomes = plane.view(*epitomes.shape[2:], c, k).permute(3, 2, 0, 1).contiguous()
    dbias = dy.sum((0, 1, 2)) if need_bias else None
    if dgain is not None:
        dgain = dgain.t().div(gain).contiguous()
    return dx, depitomes, dbias, dgain


class _Workspace:
    """Named buffers of one call, reused from chunk to chunk: a fresh large tensor would page-fault every time."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A dense tensor of this shape on the buffer of this name; what it held is gone."""
        size = 1
        for s in shape:
            size *= s
        buffer = self.buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self.buffers[name] = self.like.new_empty(size, dtype=dtype)
        return buffer[:size].view(shape)


def _transforms(x: Tensor, epitomes: Tensor, kernel: Pair):  # type: ignore[no-untyped-def]
    pool = epitomes.shape[2] - kernel[0] + 1, epitomes.shape[3] - kernel[1] + 1
    to = plane_transforms(pool, kernel, x.dtype)
    return type(to)(*(t.to(x.device) for t in to))


def _transform_epitomes(matrix: Tensor, epitomes: Tensor) -> Tensor:
    """U, (n, C, K)."""
    k, c = epitomes.shape[:2]
    planes = epitomes.permute(2, 3, 1, 0).reshape(-1, c * k)  # (V*V, C*K)
    return (matrix @ planes).view(-1, c, k)


def _patch_view(x: Tensor, kernel: Pair, stride: Pair) -> Tensor:
    """All patches, without a copy: (N, H, W, C) -> (W, W, N, oh, ow, C)."""
    return x.unfold(1, kernel[0], stride[0]).unfold(2, kernel[1], stride[1]).permute(4, 5, 0, 1, 2, 3)


def _transform_patches(work: _Workspace, matrix: Tensor, chunk: Tensor, *, centred: bool) -> Tensor:
    """X, (n, P, C), of a chunk of patches (W, W, N, rows, ow, C)."""
    (n, w2), c = matrix.shape, chunk.shape[-1]
    p = chunk.shape[2:5].numel()
    patches = work.take("patches", w2, p, c)
    patches.view(chunk.shape).copy_(chunk)
    if centred:  # x^T (w - mean w) = (x - mean x)^T w
        patches.sub_(patches.mean((0, 2), keepdim=True))
    xs = work.take("x", n, p, c)
    torch.mm(matrix, patches.view(w2, -1), out=xs.view(n, -1))
    return xs


def _maximum(work: _Workspace, responses: Tensor, best: Tensor, where: Tensor) -> None:
    """Maximum and its first position over the leading dimension, into ``best`` and ``where``; NaN wins."""
    best.copy_(responses[0])
    where.zero_()
    better = work.take("better", *best.shape, dtype=torch.bool)
    for i in range(1, len(responses)):
        torch.gt(responses[i], best, out=better)
        where.masked_fill_(better, i)
        torch.maximum(best, responses[i], out=best)


def _scatter(work: _Workspace, d: Tensor, where: Tensor, d2: int) -> Tensor:
    """Each gradient in the plane of its winner, zero elsewhere: (D*D, P, K)."""
    winners = work.take("y", d2, *d.shape)
    here = work.take("here", *d.shape, dtype=torch.bool)
    for i in range(d2):
        torch.mul(d, torch.eq(where, i, out=here), out=winners[i])
    return winners


def _fold(dx: Tensor, dpatches: Tensor, rows: slice, stride: Pair) -> None:
    """Adds patch gradients (W, W, N, rows, ow, C) back to where the patches were read from."""
    wh, ww, _, r, ow, _ = dpatches.shape
    top = rows.start * stride[0]
    for i in range(wh):
        for j in range(ww):
            at_rows = slice(top + i, top + i + (r - 1) * stride[0] + 1, stride[0])
            dx[:, at_rows, j : j + (ow - 1) * stride[1] + 1 : stride[1]] += dpatches[i, j]


def _chunks(grid: Sequence[int], floats_per_patch: int) -> Iterator[tuple[slice, slice]]:
    """Cuts the (N, oh, ow) patches into runs of whole images, or of rows of one image, that fit the workspace."""
    n, oh, ow = grid
    if n * oh * ow == 0:
        return
    rows = max(1, WORKSPACE // (floats_per_patch * ow))
    if rows >= oh:
        images = rows // oh
        for i in range(0, n, images):
            yield slice(i, min(i + images, n)), slice(0, oh)
    else:
        rows = -(-oh // -(-oh // rows))  # chunks of equal size
        for i in range(n):
            for r in range(0, oh, rows):
                yield slice(i, i + 1), slice(r, min(r + rows, oh))
