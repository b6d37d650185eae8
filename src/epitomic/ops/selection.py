"""Which algorithm a call takes when the user leaves it to ``"auto"``.

1. A training that is resumed takes the algorithms that it began with.
2. With ``epitomic.benchmark = True``, the first call of a shape times all algorithms that can serve it (`measuring`).
   A file remembers the fastest (`tuning_file`).
3. Otherwise a rule decides (`choice.choose_algorithm`).

We could not test the Triton kernels on a GPU. So before ``"auto"`` takes one for a new kind of layer, it compares it
with ``"direct"`` on a small random problem, forward and backward. If they differ, it warns and takes ``"direct"``.

While a call is traced or a CUDA graph is captured, nothing is measured or compared: the rule decides, and a Triton
kernel is taken only for kinds of layers that this process has compared before. With
``torch.use_deterministic_algorithms(True)`` nothing is measured either, because timings differ from run to run.

With several processes, the first one that meets a shape times it, and the others take its choice.
"""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

import torch
from torch import Tensor, nn

from epitomic.geometry import Geometry, TileGeometry
from epitomic.ops.choice import ALGORITHMS, Sizes, choose_algorithm
from epitomic.ops.inputs import Computed
from epitomic.ops.tracing import needs_known_operators
from epitomic.ops.triton.served import TRITON

UNTESTED = TRITON  # compared with ``"direct"`` before their first use
WAIT = timedelta(minutes=10)  # for the choice of another process

# Computes a layer: algorithm, input, weight, bias, and whether positions are wanted -> responses and positions.
Run = Callable[[str, Tensor, Tensor, Tensor | None, bool], Computed]


class Call(NamedTuple):
    """One call of a layer.

    Attributes:
        geometry: The sizes of the layer.
        input: (..., C, H, W).
        weight: (K, C / groups, ...).
        bias: One value per output channel, or None.
        dtype: The dtype to compute in.
        normalize: Whether filters are normalised (Eq. 3).
        positions: Whether the caller wants the positions.
        run: Computes the layer by any algorithm.
        unfit: Why the layer does not reduce to the kernel, or None if it does.
    """

    geometry: Sizes
    input: Tensor
    weight: Tensor
    bias: Tensor | None
    dtype: torch.dtype
    normalize: bool
    positions: bool
    run: Run
    unfit: str | None = None

    def serves(self, algorithm: str) -> str | None:
        """Returns the algorithm that a name means for this call, or None if it cannot serve it."""
        try:
            return choose_algorithm(algorithm, self.geometry, self.input, self.weight, self.dtype, self.unfit)
        except ValueError:
            return None

    @property
    def candidates(self) -> list[str]:
        """The algorithms that can serve this call, without the reference."""
        cpu = self.input.device.type == "cpu"  # where Triton's kernels run in its interpreter at best
        names = [name for name in ALGORITHMS if name not in ("auto", "reference") and not (cpu and name in TRITON)]
        return [name for name in names if self.serves(name) == name]

    @property
    def gradients(self) -> tuple[bool, ...]:
        """Whether input, weight and bias get gradients."""
        tensors = (self.input, self.weight, self.bias)
        return tuple(t is not None and t.requires_grad and torch.is_grad_enabled() for t in tensors)


class Decision(NamedTuple):
    """What was decided for a shape, for a listener.

    Attributes:
        shape: See `shape_of`.
        rule: The algorithm that the rule would take.
        algorithm: The algorithm that is taken.
        milliseconds: The times of a step by algorithm; empty if nothing was measured.
    """

    shape: str
    rule: str
    algorithm: str
    milliseconds: Mapping[str, float]


class Selection:
    """What this process has decided so far, and how it decides.

    Attributes:
        benchmark: Whether to measure.
        recording: Whether to keep all decisions, for the folder of a training run.
        pinned: Algorithms by shape, from the folder of a run that is resumed.
        made: The decisions by device and shape.
        trusted: Kinds of layers and algorithms that passed the comparison.
        disabled: Algorithms that did not pass, by device.
        listener: Called with each new decision.
        measured: Whether `made` was decided by measuring.
    """

    def __init__(self) -> None:
        self.benchmark = self.recording = False
        self.pinned: dict[str, str] = {}
        self.made: dict[tuple[str, str], str] = {}
        self.trusted: set[str] = set()
        self.disabled: set[tuple[str, str]] = set()
        self.listener: Callable[[Decision], object] | None = None
        self.measured = False

    def select(self, call: Call, rule: str) -> str:
        """Returns the algorithm for a call that is not traced. ``rule`` is what the rule says."""
        measures = self.benchmark and not torch.are_deterministic_algorithms_enabled()
        if measures != self.measured:
            self.made.clear()
            self.measured = measures
        shape = shape_of(call)
        key = str(call.input.device), shape
        if key not in self.made:
            self.made[key] = self._decide(call, shape, rule, measures)
        return self.made[key]

    def choices(self) -> dict[str, str]:
        """Returns all decisions by shape, those of the resumed run included."""
        return {**self.pinned, **{shape: algorithm for (_, shape), algorithm in self.made.items()}}

    def _decide(self, call: Call, shape: str, rule: str, measures: bool) -> str:
        milliseconds: Mapping[str, float] = {}
        wanted = self.pinned.get(shape)
        if wanted is not None and call.serves(wanted) != wanted:
            warnings.warn(
                f"this run began with algorithm {wanted!r} for {shape}, which cannot serve it here: the results of the "
                "resumed run will differ by rounding",
                stacklevel=2,
            )
            wanted = None
        if wanted is None and measures:
            wanted, milliseconds = self._fastest(call, shape, rule)
        algorithm = self._tested(call, wanted or rule)
        if self.listener:
            self.listener(Decision(shape, rule, algorithm, milliseconds))
        return algorithm

    def _fastest(self, call: Call, shape: str, rule: str) -> tuple[str, Mapping[str, float]]:
        """Returns the fastest algorithm, and the times if this process knows them."""
        from epitomic.ops.measuring import time_step
        from epitomic.ops.tuning_file import TUNING

        candidates = [name for name in call.candidates if self._tested(call, name) == name]
        times: dict[str, float] = {}

        def measure() -> str:
            times.update(TUNING.times(call.input.device, shape))
            if not set(candidates) <= set(times):
                times.clear()
                times.update(time_step(call, candidates))
                if times:
                    # A candidate that failed, perhaps for lack of memory, stays out of later contests.
                    TUNING.keep_times(call.input.device, shape, dict.fromkeys(candidates, float("inf")) | times)
            finite = {name: value for name, value in times.items() if name in candidates and value < float("inf")}
            return min(finite, key=finite.__getitem__) if finite else rule

        chosen = first_decides(shape, measure, rule)
        return (chosen if chosen in candidates else rule), times

    def _tested(self, call: Call, algorithm: str) -> str:
        """Returns the algorithm, or another one if it is untested on this device and its results differ."""
        for name in dict.fromkeys((algorithm, "triton" if algorithm in TRITON else "direct", "direct")):
            if name not in UNTESTED or self._passes(call, name):
                return name
        return "direct"

    def _passes(self, call: Call, algorithm: str) -> bool:
        from epitomic.ops.tuning_file import TUNING, device_key
        from epitomic.ops.verification import verify

        kind, device = kind_of(call), call.input.device
        if trusted_key(call, algorithm) in self.trusted:
            return True
        if (device_key(device), algorithm) in self.disabled:
            return False
        found = TUNING.verdict(device, algorithm, kind)
        if found is None:
            found = verify(call, algorithm)
            if found is None:  # there was no memory to compare them
                return False
            TUNING.keep_verdict(device, algorithm, kind, found)
        if found:
            self.disabled.add((device_key(device), algorithm))
            warnings.warn(
                f"algorithm {algorithm!r} is off on {device_key(device)}, because its results differ from 'direct' for "
                f"{kind}: {found}. The layers take 'direct' instead. Please open an issue with the output of "
                "`epitomic doctor`",
                stacklevel=2,
            )
            return False
        self.trusted.add(trusted_key(call, algorithm))
        return True


SELECTION = Selection()


def select_algorithm(algorithm: str, call: Call) -> str:
    """Returns the algorithm that ``algorithm`` means for this call. See the head of this file.

    Raises:
        ValueError: If ``algorithm`` is unknown or cannot serve this call. The message says why.
    """
    chosen = choose_algorithm(algorithm, call.geometry, call.input, call.weight, call.dtype, call.unfit)
    if algorithm != "auto":
        return chosen
    if is_traced(call.input):
        known = chosen not in UNTESTED or trusted_key(call, chosen) in SELECTION.trusted
        return chosen if known else "direct"
    if chosen in UNTESTED or SELECTION.benchmark or SELECTION.recording:
        return SELECTION.select(call, chosen)
    return chosen


@contextlib.contextmanager
def recorded(pinned: Mapping[str, str], *, benchmark: bool = False) -> Iterator[Selection]:
    """Keeps all decisions made inside, and takes those of a run that is resumed.

    Args:
        pinned: Algorithms by shape, from the run.
        benchmark: Whether to measure, besides the user's ``epitomic.benchmark``.
    """
    before = SELECTION.benchmark, SELECTION.recording, SELECTION.pinned
    SELECTION.made.clear()
    SELECTION.benchmark = SELECTION.benchmark or benchmark
    SELECTION.recording, SELECTION.pinned = True, {k: v for k, v in pinned.items() if v in ALGORITHMS}
    try:
        yield SELECTION
    finally:
        SELECTION.benchmark, SELECTION.recording, SELECTION.pinned = before
        SELECTION.made.clear()


def is_traced(input: Tensor) -> bool:
    """Whether a call is traced, exported, transformed or captured, or has no real tensor: there is nothing to time."""
    if torch.compiler.is_compiling() or needs_known_operators():
        return True
    if type(input) not in (Tensor, nn.Parameter) or input.device.type == "meta":
        return True
    return input.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def kind_of(call: Call) -> str:
    """Describes the kind of a layer: what its result depends on, and not how large its images are."""
    weight, groups = call.weight.shape, call.input.shape[-3] // call.weight.shape[1]
    text = f"{_sizes(call.geometry)}, {weight[1]} -> {weight[0]} channels, {groups} groups, {call.dtype}"
    if call.dtype == torch.float32 and call.input.device.type == "cuda":
        from epitomic.ops.triton.rule import kind_of_products

        text += f" by {kind_of_products(call.dtype)}"
    return text + (", normalised" if call.normalize else "")


def shape_of(call: Call) -> str:
    """Describes what the time of a call depends on, without the device's name: kind, batch, format and gradients."""
    x = call.input
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    layout = "channels_last" if last and not x.is_contiguous() else "contiguous"
    wanted = [name for name, needed in zip(("input", "weight", "bias"), call.gradients, strict=True) if needed]
    gradients = f"gradients of {' and '.join(wanted)}" if wanted else "no gradients"
    return f"{kind_of(call)}, input {tuple(x.shape)} {layout} on {x.device.type}, {gradients}"


def trusted_key(call: Call, algorithm: str) -> str:
    """Names what a comparison was made for: an algorithm, a device and a kind of layer."""
    device = call.input.device
    return f"{algorithm} on {device.type}:{device.index}: {kind_of(call)}"


def first_decides(shape: str, decide: Callable[[], str], fallback: str) -> str:
    """Calls ``decide`` in the first process that comes with a shape. The others wait for its answer.

    A process alone decides for itself. One that waits in vain takes ``fallback``.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return decide()
    store = torch.distributed.distributed_c10d._get_default_store()
    key = "epitomic/" + hashlib.sha256(shape.encode()).hexdigest()
    if store.add(f"{key}/asked", 1) == 1:
        answer = fallback
        try:
            answer = decide()
        finally:
            store.set(key, answer)
        return answer
    try:
        store.wait([key], WAIT)
        return store.get(key).decode()
    except RuntimeError:
        return fallback


def _sizes(geometry: Sizes) -> str:
    """Returns the sizes of a layer in words."""
    if isinstance(geometry, TileGeometry):
        return f"filters {geometry.kernel}, padding {geometry.padding}"
    step, padding = geometry.stride, geometry.padding
    text = f"filters {geometry.kernel}, pool {geometry.pool}, stride {step}, padding {padding}"
    if isinstance(geometry, Geometry):
        return f"epitomes {geometry.epitome}, {text}, epitome stride {geometry.epitome_stride}"
    pooling = f"pool stride {geometry.pool_stride}, pool padding {geometry.pool_padding}"
    return f"{text}, {pooling}" + (", ceil mode" if geometry.ceil_mode else "")
