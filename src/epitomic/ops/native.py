"""The kernel as a small C++ library (``src/epitomic/native``): `winograd` without its passes over memory.

The three stages are those of `winograd`, but fused: a thread takes a block of patches from the input to the winners,
and nothing of size V*V leaves its caches. The library has no dependencies and no state. It gets sizes and pointers by
``ctypes``, which releases the GIL. This module allocates all memory and checks all sizes. The library runs on
``torch.get_num_threads()`` threads. The results do not depend on their number, to the last bit, because the order of
every sum is fixed.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Pair
from epitomic.ops import library
from epitomic.ops.filters import filter_means, patch_means
from epitomic.ops.library import NATIVE, Plan, Pointers, Problem, Run, why_not_native
from epitomic.ops.operands import Gradients, Operands, is_channels_last
from epitomic.ops.threads import THREADS
from epitomic.ops.transforms import MAX_POINTS, axis_transforms


def forward(operands: Operands) -> tuple[Tensor, Tensor]:
    """See `matching.Kernel.forward`."""
    x, _, bias, gain, grid = operands
    call = _Call(operands)
    call.check(bias, gain)
    y = x.new_empty(operands.output)
    positions = x.new_empty(operands.winners, dtype=torch.uint8)
    if y.numel() == 0:
        return y, positions
    x = x.contiguous()
    call.bind(x=x, y=y, positions=positions, bias=call.padded(bias), gain=call.padded(gain))
    if gain is not None:
        call.bind(patch_mean=patch_means(x, grid.patch, grid.stride))
    kept = call.kept()
    for group in range(call.plan.output_groups):
        call.bind(group, u=kept[group] if kept else call.packed(group, _SCRATCH.take("packed", call.plan.u)))
        call.run(library.FORWARD)
    return y, positions


def backward(dy: Tensor, y: Tensor | None, positions: Tensor, operands: Operands, needs: Sequence[bool]) -> Gradients:
    """See `matching.Kernel.backward`."""
    x, weights, bias, gain, grid = operands
    need_x, need_weights, need_bias, need_gain = needs
    if dy.numel() == 0:
        tensors = zip((x, weights, bias, gain), needs, strict=True)
        dx, dweights, dbias, dgain = (None if t is None or not need else torch.zeros_like(t) for t, need in tensors)
        return dx, dweights, dbias, dgain

    dbias = dy.sum((0, 1, 2)) if need_bias and gain is None else None
    dweights = torch.empty_like(weights) if need_weights else None  # in the format of the weights
    dx = dgain = None
    call = _Call(operands)
    call.check(bias, gain, dy=dy, positions=positions, y=y)
    call.bind(dy=dy, positions=positions)
    if gain is not None:
        assert y is not None
        sums = x.new_empty(call.plan.tasks[library.AFFINE], 1 + gain.shape[1], call.padded_k)
        scaled = torch.empty_like(dy)
        call.bind(y=y, bias=call.padded(bias), gain=call.padded(gain), sums=sums, dy_scaled=scaled)
        call.run(library.AFFINE)
        total = sums.sum(0)[:, : weights.shape[0]]  # (1 + D*D, K)
        dbias = total[0].contiguous() if need_bias else None
        dgain = total[1:].t().div(gain).contiguous() if need_gain else None
        call.bind(dy=scaled)
    if need_weights:
        call.bind(x=x.contiguous())
        if gain is not None:
            call.bind(patch_mean=patch_means(call.tensors["x"], grid.patch, grid.stride))
        call.bind(du=_SCRATCH.take("packed", call.plan.slices * call.plan.u), dweights=call.dense(dweights))
        for group in range(call.plan.output_groups):
            call.bind(group)
            call.run(library.WEIGHTS)
            call.run(library.UNPACK)
        call.bind(x=None)  # frees the copy of x, if there is one, before dx is made
    if need_x:
        dx = torch.empty_like(x)  # dense, in the format of x
        call.bind(dx=dx.permute(0, 3, 1, 2) if call.problem.dx_planes else dx)
        if gain is not None:
            call.bind(filter_mean=call.padded(filter_means(weights, grid.patch)))
        call.bind(u_transposed=_SCRATCH.take("packed", call.plan.u_transposed))
        for group in range(call.plan.channel_groups):
            call.bind(group)
            call.run(library.PACK_TRANSPOSED)
            call.run(library.INPUT)
    return dx, dweights, dbias, dgain


class _Call:
    """The sizes, plan and tensors of one call of the library. Bound tensors stay alive as long as the call."""

    def __init__(self, operands: Operands) -> None:
        x, weights, _, _, grid = operands
        (n, h, w, c), (k, channels, *size) = x.shape, weights.shape
        reason = why_not_native(x.dtype, x.device)
        if max(*size, *grid.patch) > MAX_POINTS:
            got = f"got {tuple(size)} and {grid.patch}"
            reason = reason or f"weights and patches must be at most {MAX_POINTS} points high and wide, {got}"
        if channels != c or min(*grid.patch, *grid.stride, *grid.outputs, h, w) < 1 or not _in_range(operands):
            shapes = f"input {tuple(x.shape)}, weights {tuple(weights.shape)}"
            reason = reason or f"{shapes} and {grid} do not fit each other"
        if reason:
            raise ValueError(reason)
        assert NATIVE.library is not None
        self.library, self.target = NATIVE.library, NATIVE.target.encode()
        self.operands = operands
        self.sizes = grid.patch, (size[0], size[1])
        self.tensors: dict[str, Tensor] = {}
        self.pointers = Pointers()
        self.threads = torch.get_num_threads()
        pairs = (grid.patch, size, *grid[1:6])
        self.problem = Problem(n, h, w, c, k, *((ctypes.c_int64 * 2)(*pair) for pair in pairs), grid.keep_all)
        self.problem.threads, self.problem.dx_planes = self.threads, not x.is_contiguous()
        self.problem.weights_last = is_channels_last(weights)
        for name, matrices in zip(("output_map", "patch_map", "weight_map"), _matrices(*self.sizes), strict=True):
            ctypes.memmove(ctypes.addressof(getattr(self.problem, name)), matrices, ctypes.sizeof(matrices))
        self.plan = Plan()
        if n * k > 0:
            self.library.epitomic_plan(self.target, ctypes.byref(self.problem), ctypes.byref(self.plan))
            self.padded_k = -(-k // self.plan.panel) * self.plan.panel
        self.bind(weights=self.dense(weights))

    def check(self, bias: Tensor | None, gain: Tensor | None, **outputs: Tensor | None) -> None:
        """Checks the shapes of bias, gain and the tensors that have one value per output."""
        k, pool = self.operands.weights.shape[0], self.operands.pool
        want = {"bias": (k,), "gain": (k, pool[0] * pool[1]), "positions": self.operands.winners}
        for name, tensor in {"bias": bias, "gain": gain, **outputs}.items():
            size = want.get(name, self.operands.output)
            if tensor is not None and tensor.shape != size:
                raise ValueError(f"{name} must be {size}, got {tuple(tensor.shape)}")

    def bind(self, group: int = 0, **tensors: Tensor | None) -> None:
        """Sets the group to work on, and tensors under the names of `Pointers`. None releases a tensor."""
        self.pointers.group = group
        for name, tensor in tensors.items():
            if tensor is None:
                self.tensors.pop(name, None)
                setattr(self.pointers, name, None)
                continue
            dtype = torch.uint8 if name == "positions" else torch.float32
            if not tensor.is_contiguous() or tensor.dtype != dtype or tensor.device.type != "cpu":
                raise ValueError(f"{name} must be dense {dtype} on CPU, got {tensor.dtype} on {tensor.device}")
            self.tensors[name] = tensor
            setattr(self.pointers, name, tensor.data_ptr())

    def dense(self, weights: Tensor | None) -> Tensor | None:
        """Returns (K, C, S, S) weights, or their gradient, as the library reads them: a view of (K, S, S, C) data."""
        return weights.permute(0, 2, 3, 1) if weights is not None and self.problem.weights_last else weights

    def padded(self, t: Tensor | None) -> Tensor | None:
        """Transposes and pads with zeros to whole panels: (K, ...) -> (..., K+), dense."""
        if t is None:
            return None
        return F.pad(t.t() if t.dim() == 2 else t, (0, self.padded_k - t.shape[0])).contiguous()

    def packed(self, group: int, u: Tensor) -> Tensor:
        """Fills ``u`` with a group of U, made from the weights."""
        self.bind(group, u=u)
        self.run(library.PACK)
        return u

    def kept(self) -> list[Tensor] | None:
        """Returns all groups of U, if the weights have not changed since the last call.

        A new ``_version``, as after a training step, means that they have changed: then nothing is kept. The same
        ``_version`` proves nothing: ``tensor.data`` and other views of the storage change a tensor without a trace. So
        from the second call with one version on, as in inference, the values are compared bit by bit with a copy. That
        costs a fraction of packing. U is kept as long as they agree and the storage lives.
        """
        weights = self.operands.weights
        version = 0 if weights.is_inference() else weights._version
        state = (version, self.sizes, self.target, weights.shape, weights.stride(), weights.storage_offset())
        storage = weights.untyped_storage()
        last = _PACKED.get(storage)
        if last is None or last.state != state:
            _PACKED[storage] = _Packed(state, None, [])
            return None
        if last.copy is None or not _same_bits(last.copy, weights):
            groups = [self.packed(i, weights.new_empty(self.plan.u)) for i in range(self.plan.output_groups)]
            last = _PACKED[storage] = _Packed(state, weights.detach().clone(), groups)
        return last.groups

    def run(self, which: int) -> None:
        """Runs one pass on all threads."""
        threads = self.threads if self.plan.tasks[which] > 1 else 1
        floats = -(-self.plan.workspace[which] // 16) * 16
        workspace = _SCRATCH.take("workspace", threads * floats + 16)  # 16 more, to start at a cache line
        start = -(-workspace.data_ptr() // 64) * 64
        structs = (ctypes.addressof(struct) for struct in (self.problem, self.plan, self.pointers))
        THREADS.call(threads, self.library.epitomic_run, Run(self.target, *structs, start, floats, which))


class _Scratch(threading.local):
    """Memory that a thread's calls reuse. Fresh memory would be faulted in page by page at every call.

    A thread keeps as much as its largest call took, one group of U and the workspaces: some 10 to 25 MB.
    """

    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, floats: int) -> Tensor:
        """Returns a buffer of this size with undefined contents."""
        buffer = self.buffers.get(name)
        if buffer is None or buffer.numel() < floats:
            self.buffers.pop(name, None)
            buffer = self.buffers[name] = torch.empty(floats, dtype=torch.float32, device="cpu")
        return buffer[:floats]


_SCRATCH = _Scratch()


class _Packed(NamedTuple):
    """U of the weights of an earlier call, and what shows whether the weights are still the same."""

    state: tuple[Any, ...]
    copy: Tensor | None  # of the weights
    groups: list[Tensor]


# Packed weights by storage. An entry is dropped with its storage. A weak reference to the tensor itself would forbid
# torch to swap it, which `torch.__future__.set_swap_module_params_on_conversion` asks for.
_PACKED: WeakKeyDictionary[torch.UntypedStorage, _Packed] = WeakKeyDictionary()


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Returns whether two dense tensors of one shape hold the same bits, by C's ``memcmp``, which is fastest."""
    return _memcmp()(a.data_ptr(), b.data_ptr(), a.numel() * a.element_size()) == 0


@cache
def _memcmp() -> Any:
    function = ctypes.CDLL(None).memcmp
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return function


def _in_range(operands: Operands) -> bool:
    """Returns whether every patch has a response that counts, and every response that counts has a patch."""
    grid, pool = operands.grid, operands.pool
    for d, stride, before, count, skipped, end in zip(pool, *grid[1:6], strict=True):
        last = (count - 1) * stride - skipped
        fits = before >= 0 and 0 <= skipped < d and last < end
        if not fits or (grid.keep_all and (stride != d or skipped or last + d < end)):
            return False
    (h, w), (ph, pw) = operands.x.shape[1:3], grid.patch
    inside = grid.before == (0, 0) and (grid.outputs[0] - 1) * grid.stride[0] + ph <= h
    return operands.gain is None or (inside and (grid.outputs[1] - 1) * grid.stride[1] + pw <= w)


@cache
def _matrices(patch: Pair, weight: Pair) -> tuple[Any, Any, Any]:
    """Returns A (V, D), and the maps of patches (V, P) and weights (V, S), of both axes, each padded to 64 floats."""
    arrays = [(ctypes.c_float * 128)() for _ in range(3)]
    for i, (p, s) in enumerate(zip(patch, weight, strict=True)):
        maps = axis_transforms(p, s, torch.float32)
        for array, matrix in zip(arrays, (maps.output.t(), maps.patch, maps.weight), strict=True):
            array[64 * i : 64 * i + matrix.numel()] = matrix.flatten().tolist()
    return arrays[0], arrays[1], arrays[2]
