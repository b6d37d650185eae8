"""Runs every algorithm on a device against the reference, over a grid of layers and dtypes, and times it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from epitomic.functional import epitomic_conv2d, max_pool_conv2d
from epitomic.ops.choice import ALGORITHMS
from epitomic.ops.verification import Trial, what_differs
from epitomic.support.console import Progress

DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16}
REPETITIONS = 3


@dataclass(frozen=True)
class Subject:
    """One layer of the grid.

    Attributes:
        name: What the layer has that the others have not.
        function: `epitomic_conv2d` or `max_pool_conv2d`.
        x: Shape of the input, (N, C, H, W).
        weight: Shape of the weights.
        outputs: Number of output channels.
        options: Keyword arguments of the function.
        channels_last: Memory format of the input.
    """

    name: str
    function: Any
    x: tuple[int, int, int, int]
    weight: tuple[int, int, int, int]
    outputs: int
    options: dict[str, Any]
    channels_last: bool = False

    def trial(self, dtype: torch.dtype, device: torch.device) -> Trial:
        """Draws the tensors."""
        draws = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=draws).to(device, dtype)

        x = normal(*self.x)
        x = x.contiguous(memory_format=torch.channels_last) if self.channels_last else x
        scale = (self.weight[1] * self.weight[2] * self.weight[3]) ** 0.5
        return Trial(x, normal(*self.weight) / scale, normal(self.outputs))

    def run(self, algorithm: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Calls the layer; the reference runs on the CPU."""
        call = partial(self.function, **self.options, algorithm=algorithm, return_positions=True)
        if algorithm != "reference":
            return call(x, weight, bias)
        y, positions = call(x.cpu(), weight.cpu(), None if bias is None else bias.cpu())
        return y.to(x.device), positions.to(x.device)


SUBJECTS = (
    Subject("3x3, pool 2", epitomic_conv2d, (2, 16, 12, 12), (24, 16, 4, 4), 24, {"kernel_size": 3}),
    Subject("channels_last", epitomic_conv2d, (2, 16, 12, 12), (24, 16, 4, 4), 24, {"kernel_size": 3}, True),
    Subject("6x6, pool 3", epitomic_conv2d, (2, 5, 18, 17), (7, 5, 8, 8), 7, {"kernel_size": 6}),
    Subject(
        "padding, stride 1",
        epitomic_conv2d,
        (2, 33, 7, 9),
        (17, 33, 4, 5),
        17,
        {"kernel_size": 3, "stride": 1, "padding": 1},
    ),
    Subject(
        "epitome stride 2", epitomic_conv2d, (2, 3, 24, 24), (8, 3, 8, 8), 8, {"kernel_size": 4, "epitome_stride": 2}
    ),
    Subject("topographic", epitomic_conv2d, (2, 4, 12, 12), (3, 4, 8, 8), 27, {"kernel_size": 3, "pool_size": 2}),
    Subject(
        "normalised, 2 groups",
        epitomic_conv2d,
        (2, 8, 12, 12),
        (6, 4, 5, 5),
        6,
        {"kernel_size": 3, "normalize": True, "groups": 2},
    ),
    Subject("max-pooling 3/2", max_pool_conv2d, (2, 8, 13, 13), (12, 8, 3, 3), 12, {"pool_size": 3, "pool_stride": 2}),
)


@dataclass(frozen=True)
class Finding:
    """What became of one algorithm on one layer in one dtype.

    Attributes:
        subject: Name of the layer.
        dtype: Name of the dtype.
        algorithm: Name of the algorithm.
        verdict: ``"pass"``, ``"FAIL"`` or ``"not served"``.
        detail: What differed or why the call is not served; empty after a pass.
        milliseconds: Shortest time of a training step, or None unless it passed.
    """

    subject: str
    dtype: str
    algorithm: str
    verdict: str
    detail: str
    milliseconds: float | None


def examine(device: torch.device, progress: Progress) -> Iterator[Finding]:
    """Yields a finding for each layer, dtype and algorithm. ``progress`` advances by one for each.

    TF32 is switched off, so that float32 means float32.
    """
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        for dtype_name, dtype in DTYPES.items():
            for subject in SUBJECTS:
                for algorithm in ALGORITHMS[2:]:  # all but auto and the reference itself
                    progress.update(f"{dtype_name}: {subject.name} by {algorithm}", progress.done + 1)
                    yield _examine(subject, dtype_name, dtype, algorithm, device)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn


def count_findings() -> int:
    """Returns how many findings `examine` yields."""
    return len(DTYPES) * len(SUBJECTS) * len(ALGORITHMS[2:])


def _examine(subject: Subject, dtype_name: str, dtype: torch.dtype, algorithm: str, device: torch.device) -> Finding:
    def found(verdict: str, detail: str = "", milliseconds: float | None = None) -> Finding:
        return Finding(subject.name, dtype_name, algorithm, verdict, detail, milliseconds)

    try:
        trial = subject.trial(dtype, device)
    except (RuntimeError, TypeError) as error:  # such as float64 on MPS
        return found("not served", str(error).splitlines()[0])
    try:
        differs = what_differs(subject.run, algorithm, trial, truth="reference")
        return found("FAIL", differs) if differs else found("pass", "", _time(subject, algorithm, trial))
    except ValueError as error:  # the algorithm says that it cannot serve the call
        return found("not served", str(error))
    except Exception as error:  # a kernel that does not compile, or crashes: the very thing to report
        return found("FAIL", f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}")


def _time(subject: Subject, algorithm: str, trial: Trial) -> float:
    leaves = [t.detach().requires_grad_() for t in trial if t is not None]
    x, weight, bias = leaves

    def step() -> None:
        y, _ = subject.run(algorithm, x, weight, bias)
        torch.autograd.grad(y, leaves, torch.ones_like(y))
        if x.device.type != "cpu":
            torch.accelerator.synchronize()

    times = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return 1e3 * min(times)
