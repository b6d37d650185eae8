"""Times the algorithms that can serve a call, on the call's own tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from epitomic.ops.selection import Call

REPETITIONS = 3  # timings of each algorithm that is not far behind; the shortest counts
FAR_BEHIND = 2.0  # an algorithm whose first timing is this much longer than the best gets no more


def time_step(call: Call, algorithms: Sequence[str]) -> dict[str, float]:
    """Returns the milliseconds that each algorithm takes for a forward pass and the gradients that the call needs.

    An algorithm that fails, for example because the memory is too small, is left out.
    """
    from epitomic.support.stopwatch import timed

    device = call.input.device
    times: dict[str, float] = {}
    steps = {}
    for algorithm in algorithms:
        step = _step(call, algorithm)
        try:
            step()  # compiles kernels and fills caches
            times[algorithm] = 1e3 * timed(step, device)
        except Exception:  # whatever it is, another algorithm can do without it
            times.pop(algorithm, None)
            if device.type == "cuda":
                torch.cuda.empty_cache()
            continue
        steps[algorithm] = step
    for _ in range(REPETITIONS - 1):
        best = min(times.values(), default=0.0)
        for algorithm, step in steps.items():
            if times[algorithm] <= FAR_BEHIND * best:
                times[algorithm] = min(times[algorithm], 1e3 * timed(step, device))
    return times


def _step(call: Call, algorithm: str) -> Callable[[], object]:
    """Returns a function that computes the layer, and its gradients if the call needs any."""
    if not any(call.gradients):

        def forward() -> object:
            with torch.no_grad():
                return call.run(algorithm, call.input, call.weight, call.bias, call.positions)

        return forward
    tensors = (call.input, call.weight, call.bias)
    # Leaves of their own: no hook of the user's is called, and no gradient of the user's changes.
    inputs = [
        t if t is None else t.detach().requires_grad_(need) for t, need in zip(tensors, call.gradients, strict=True)
    ]
    x, weight, bias = inputs
    assert x is not None
    assert weight is not None

    def step() -> object:
        y, _ = call.run(algorithm, x, weight, bias, call.positions)
        leaves = [t for t in inputs if t is not None and t.requires_grad]
        return torch.autograd.grad(y, leaves, torch.ones_like(y))

    return step
