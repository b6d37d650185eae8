"""The kernel as a small C++ library, ``src/epitomic/native``: `winograd` without its passes over memory.

The same three stages as in `winograd`, but fused: a thread takes a block of patches from the input to the winners, and
nothing of size V*V leaves its caches. The library has no dependency and keeps no state: it gets sizes and pointers by
``ctypes``, which lets go of the GIL. All memory is allocated here, and all sizes are checked here. It runs on
``torch.get_num_threads()`` threads; every sum has an order of its own that does not depend on their number, so neither
do the results, to the last bit.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from epitomic.geometry import Pair
from epitomic.ops.filters import patch_means
from epitomic.ops.library import (
    AFFINE,
    EPITOMES,
    FORWARD,
    HASH,
    INPUT,
    NATIVE,
    PACK,
    PACK_TRANSPOSED,
    UNPACK,
    Plan,
    Pointers,
    Problem,
    Run,
    why_not_native,
)
from epitomic.ops.operands import Gradients, Operands
from epitomic.ops.threads import THREADS
from epitomic.ops.transforms import MAX_POINTS, axis_transforms


def forward(operands: Operands) -> tuple[Tensor, Tensor]:
    """See `matching.Kernel.forward`."""
    x, epitomes, bias, gain, kernel, stride = operands
    call = _Call(x, epitomes, kernel, stride)
    call.check(bias, gain)
    y = x.new_empty(*call.grid, epitomes.shape[0])
    positions = torch.empty_like(y, dtype=torch.uint8)
    if y.numel() == 0:
        return y, positions
    x = x.contiguous()
    call.bind(x=x, y=y, positions=positions, bias=call.padded(bias), gain=call.padded(gain))
    if gain is not None:
        call.bind(patch_mean=patch_means(x, kernel, stride))
    kept = call.kept()
    for group in range(call.plan.epitome_groups):
        call.bind(group, u=kept[group] if kept else call.packed(group, _SCRATCH.take("packed", call.plan.u)))
        call.run(FORWARD)
    return y, positions


def backward(dy: Tensor, y: Tensor | None, positions: Tensor, operands: Operands, needs: Sequence[bool]) -> Gradients:
    """See `matching.Kernel.backward`."""
    x, epitomes, bias, gain, kernel, stride = operands
    need_x, need_epitomes, need_bias, need_gain = needs
    if dy.numel() == 0:
        zeros = [
            torch.zeros_like(t) if t is not None and need else None
            for t, need in zip((x, epitomes, bias, gain), needs, strict=True)
        ]
        return zeros[0], zeros[1], zeros[2], zeros[3]

    dbias = dy.sum((0, 1, 2)) if need_bias and gain is None else None
    depitomes = torch.empty_like(epitomes) if need_epitomes else None
    dx = dgain = None
    call = _Call(x, epitomes, kernel, stride)
    call.check(bias, gain, dy=dy, positions=positions, y=y)
    call.bind(dy=dy, positions=positions)
    if gain is not None:
        assert y is not None
        d2, k = gain.shape[1], call.padded_k
        sums = x.new_empty(call.plan.tasks[AFFINE], 1 + d2, k)
        scaled = torch.empty_like(dy)
        call.bind(y=y, bias=call.padded(bias), gain=call.padded(gain), sums=sums, dy_scaled=scaled)
        call.run(AFFINE)
        total = sums.sum(0)[:, : epitomes.shape[0]]  # (1 + D*D, K)
        dbias = total[0].contiguous() if need_bias else None
        dgain = total[1:].t().div(gain).contiguous() if need_gain else None
        call.bind(dy=scaled)
    if need_epitomes:
        call.bind(x=x.contiguous())
        if gain is not None:
            call.bind(patch_mean=patch_means(call.tensors["x"], kernel, stride))
        call.bind(du=_SCRATCH.take("packed", call.plan.slices * call.plan.u), depitomes=depitomes)
        for group in range(call.plan.epitome_groups):
            call.bind(group)
            call.run(EPITOMES)
            call.run(UNPACK)
        call.bind(x=None)  # a copy, if x was not dense: it need not meet dx
    if need_x:
        dx = torch.empty_like(x)  # dense, in the format of x
        call.bind(dx=dx.permute(0, 3, 1, 2) if call.problem.dx_planes else dx)
        if gain is not None:  # mean over the channels and the W x W box of every filter
            means = F.avg_pool2d(epitomes.mean(1, keepdim=True), kernel, stride=1).flatten(1)
            call.bind(filter_mean=call.padded(means))
        call.bind(u_transposed=_SCRATCH.take("packed", call.plan.u_transposed))
        for group in range(call.plan.channel_groups):
            call.bind(group)
            call.run(PACK_TRANSPOSED)
            call.run(INPUT)
    return dx, depitomes, dbias, dgain


class _Call:
    """Sizes, plan and tensors of one call of the library. What is bound stays alive as long as the call."""

    def __init__(self, x: Tensor, epitomes: Tensor, kernel: Pair, stride: Pair) -> None:
        (n, h, w, c), (k, channels, *v) = x.shape, epitomes.shape
        pool = v[0] - kernel[0] + 1, v[1] - kernel[1] + 1
        reason = why_not_native(x.dtype, x.device)
        if max(v) > MAX_POINTS:
            reason = reason or f"epitomes must be at most {MAX_POINTS} points high and wide, got {tuple(v)}"
        if reason is None and (channels != c or min(*kernel, *pool, *stride) < 1 or h < kernel[0] or w < kernel[1]):
            reason = f"input {tuple(x.shape)}, epitomes {tuple(epitomes.shape)}, filters {kernel} do not fit each other"
        if reason:
            raise ValueError(reason)
        assert NATIVE.library is not None
        self.library, self.target = NATIVE.library, NATIVE.target.encode()
        self.grid = n, (h - kernel[0]) // stride[0] + 1, (w - kernel[1]) // stride[1] + 1
        self.geometry = kernel, pool
        self.tensors: dict[str, Tensor] = {}
        self.pointers = Pointers()
        self.epitomes = epitomes
        self.threads = torch.get_num_threads()
        pair = ctypes.c_int64 * 2
        self.problem = Problem(n, h, w, c, k, pair(*kernel), pair(*pool), pair(*stride), self.threads)
        self.problem.dx_planes = not x.is_contiguous()
        for name, matrices in zip(("patch", "output", "epitome"), _matrices(kernel, pool), strict=True):
            ctypes.memmove(ctypes.addressof(getattr(self.problem, name)), matrices, ctypes.sizeof(matrices))
        self.plan = Plan()
        if n * k > 0:
            self.library.epitomic_plan(self.target, ctypes.byref(self.problem), ctypes.byref(self.plan))
            self.padded_k = -(-k // self.plan.panel) * self.plan.panel
        self.bind(epitomes=epitomes)

    def check(self, bias: Tensor | None, gain: Tensor | None, **outputs: Tensor | None) -> None:
        """Sizes of all that has as many values as there are epitomes, or outputs."""
        k, pool = self.epitomes.shape[0], self.geometry[1]
        want = {"bias": (k,), "gain": (k, pool[0] * pool[1])}
        for name, tensor in {"bias": bias, "gain": gain, **outputs}.items():
            size = want.get(name, (*self.grid, k))
            if tensor is not None and tensor.shape != size:
                raise ValueError(f"{name} must be {size}, got {tuple(tensor.shape)}")

    def bind(self, group: int = 0, **tensors: Tensor | None) -> None:
        """Gives tensors to the call, under the names of `Pointers`; None takes one back. Says which group is next."""
        self.pointers.group = group
        for name, tensor in tensors.items():
            if tensor is None:
                self.tensors.pop(name, None)
                setattr(self.pointers, name, None)
                continue
            dtype = {"positions": torch.uint8, "hashes": torch.int64}.get(name, torch.float32)
            if not tensor.is_contiguous() or tensor.dtype != dtype or tensor.device.type != "cpu":
                raise ValueError(f"{name} must be dense {dtype} on CPU, got {tensor.dtype} on {tensor.device}")
            self.tensors[name] = tensor
            setattr(self.pointers, name, tensor.data_ptr())

    def padded(self, t: Tensor | None) -> Tensor | None:
        """(K, ...) -> (..., K+), dense, zeros in the padding."""
        if t is None:
            return None
        return F.pad(t.t() if t.dim() == 2 else t, (0, self.padded_k - t.shape[0])).contiguous()

    def packed(self, group: int, u: Tensor) -> Tensor:
        """A group of U, made from the epitomes."""
        self.bind(group, u=u)
        self.run(PACK)
        return u

    def kept(self) -> list[Tensor] | None:
        """All groups of U, if the epitomes are the same as in the last call.

        A new ``_version`` says that they are not, as after a step of training: then nothing is kept. The old one proves
        nothing, as ``tensor.data`` and other views of the storage change a tensor without a trace. So from the second
        call with one version on, as in inference, the values are hashed each time, which costs a fraction of packing,
        and U is kept for as long as the hashes agree and the tensor lives.
        """
        epitomes = self.epitomes
        state = (0 if epitomes.is_inference() else epitomes._version, self.geometry, self.target, epitomes.shape)
        last = _PACKED.get(epitomes)
        if last is None or last.state != state:
            _PACKED[epitomes] = _Packed(state, None, [])
            return None
        hashes = torch.empty(self.plan.tasks[HASH], dtype=torch.int64, device="cpu")
        self.bind(hashes=hashes)
        self.run(HASH)
        if last.hashes is None or not torch.equal(last.hashes, hashes):
            groups = [self.packed(i, epitomes.new_empty(self.plan.u)) for i in range(self.plan.epitome_groups)]
            last = _PACKED[epitomes] = _Packed(state, hashes, groups)
        return last.groups

    def run(self, which: int) -> None:
        """Runs one pass on all threads."""
        threads = self.threads if self.plan.tasks[which] > 1 else 1
        floats = -(-self.plan.workspace[which] // 16) * 16
        workspace = _SCRATCH.take("workspace", threads * floats + 16)  # cut at cache lines
        start = -(-workspace.data_ptr() // 64) * 64
        structs = (ctypes.addressof(struct) for struct in (self.problem, self.plan, self.pointers))
        THREADS.call(threads, self.library.epitomic_run, Run(self.target, *structs, start, floats, which))


class _Scratch(threading.local):
    """Memory that a thread's calls use one after another: fresh memory is faulted in page by page, every time.

    A thread that has called keeps what its largest call took, U of one group and the workspaces: some 10 to 25 MB.
    """

    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, floats: int) -> Tensor:
        """A buffer of this size; what it held is gone."""
        buffer = self.buffers.get(name)
        if buffer is None or buffer.numel() < floats:
            self.buffers.pop(name, None)
            buffer = self.buffers[name] = torch.empty(floats, dtype=torch.float32, device="cpu")
        return buffer[:floats]


_SCRATCH = _Scratch()


class _Packed(NamedTuple):
    """What is known of epitomes from their last call."""

    state: tuple[Any, ...]
    hashes: Tensor | None
    groups: list[Tensor]


# By the epitomes, not their values; an entry goes with its tensor.
_PACKED: Any = WeakTensorKeyDictionary()


@cache
def _matrices(kernel: Pair, pool: Pair) -> tuple[Any, Any, Any]:
    """G (V, W), A (V, D) and B^T (V, V) of both axes, each padded to 64 floats."""
    axes = [axis_transforms(d, w, torch.float32) for d, w in zip(pool, kernel, strict=True)]
    for axis in axes:
        _check_points(axis.patch)
        _check_points(axis.output.t())
    arrays = []
    for pair in ([a.patch for a in axes], [a.output.t() for a in axes], [a.epitome for a in axes]):
        array = (ctypes.c_float * 128)()
        for i, matrix in enumerate(pair):
            for j, value in enumerate(matrix.flatten().tolist()):
                array[64 * i + j] = value
        arrays.append(array)
    return arrays[0], arrays[1], arrays[2]


def _check_points(m: Tensor) -> None:
    """The library counts on the order of the points: zero if V is even, pairs -t, t, then infinity."""
    v, w = m.shape
    sign = torch.tensor([(-1.0) ** j for j in range(w)])
    pairs = range(int(v % 2 == 0), v - 1, 2)
    fits = all(torch.equal(m[r] * sign, m[r + 1]) for r in pairs) and m[-1].count_nonzero() == m[-1, -1].count_nonzero()
    if v % 2 == 0:
        fits = fits and m[0].count_nonzero() == m[0, 0].count_nonzero()
    if not fits:
        raise RuntimeError(f"the native kernel needs points in the order 0, -t, t, ..., infinity, and got\n{m}")
