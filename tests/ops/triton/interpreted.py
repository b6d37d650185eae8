"""Random layers by both Triton algorithms in Triton's interpreter, against the reference. A program of its own.

    TRITON_INTERPRET=1 python -m tests.ops.triton.interpreted SEED COUNT [large]

Triton reads the variable when the kernels are imported, so other tests cannot share the process.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from epitomic import epitomic_conv2d, max_pool_conv2d
from epitomic.ops.triton.served import TRITON, interpreting

# Largest error of a response, as a share of the largest response. bfloat16 has 3 bits fewer than float16.
LIMITS = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 8e-2}


def draw(
    rng: random.Random, large: bool
) -> tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Draws a function, the shapes of its input and weights, and its options."""
    groups = rng.choice([1, 1, 1, 2])
    n, c, k = rng.choice([1, 1, 2, 3]), groups * rng.choice([1, 2, 3, 17]), groups * rng.choice([1, 3, 5, 18])
    kernel = rng.randint(1, 3 + large), rng.randint(1, 2 + 3 * large)
    pool = rng.randint(1, 2 + large), rng.randint(1, 2 + large)
    options: dict[str, Any] = {"padding": (rng.randint(0, 1), rng.randint(0, 2)), "groups": groups}
    size = tuple(w + d + rng.randint(0, 2 + 2 * large) for w, d in zip(kernel, pool, strict=True))
    step = rng.choice([(1, 1), (1, 1), (2, 1), (2, 2)])
    stride = rng.choice([None, (rng.randint(1, 3), rng.randint(1, 3))])
    if rng.random() < 0.5:
        pooling = {"pool_size": pool, "pool_stride": stride, "pool_padding": (pool[0] // 2, 0), "stride": step}
        options |= pooling | {"ceil_mode": rng.random() < 0.5, "normalize": rng.random() < 0.2}
        seen = tuple((d - 1) * e + w + 2 for d, e, w in zip(pool, step, kernel, strict=True))
        return (
            max_pool_conv2d,
            (n, c, *(max(a, b) for a, b in zip(size, seen, strict=True))),
            (k, c // groups, *kernel),
            options,
        )
    more = rng.choice([(0, 0), (0, 0), (1, 2)])  # beyond the mini-epitome: topographic
    epitome = tuple(w + (d - 1) * e + m for w, d, e, m in zip(kernel, pool, step, more, strict=True))
    options |= {"kernel_size": kernel, "pool_size": pool, "stride": stride, "epitome_stride": step}
    options["normalize"] = rng.random() < 0.5
    return epitomic_conv2d, (n, c, *size), (k, c // groups, *epitome), options


def run(
    function: Callable[..., Any], tensors: list[Tensor], options: dict[str, Any], algorithm: str
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Returns responses, winners, and the leaves of the graph."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    y, winners = function(*leaves, **options, algorithm=algorithm, return_positions=True)
    return y, winners, leaves


def check(seed: int, large: bool) -> None:
    """Compares one random layer with the reference in float64, in one dtype, by both algorithms."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    function, shape, weights, options = draw(rng, large)
    dtype = rng.choice([torch.float32, torch.float32, torch.float16, torch.bfloat16])
    x = torch.randn(shape)
    x = x.contiguous(memory_format=torch.channels_last) if rng.random() < 0.5 else x
    probe = function(x, torch.randn(weights), **options, algorithm="direct")
    exact = [t.to(dtype).double() for t in (x, torch.randn(weights), torch.randn(probe.shape[1]))]
    y, winners, exact_leaves = run(function, exact, options, "reference")
    limit = LIMITS[dtype] * y.abs().max().item()
    dy = torch.randn(y.shape, dtype=dtype).double()
    for algorithm in TRITON:
        got, won, leaves = run(function, [t.to(dtype) for t in exact], options, algorithm)
        where = f"seed {seed}, {algorithm}, {dtype}, {function.__name__}{shape}, weights {weights}, {options}"
        assert got.dtype == dtype, where
        assert (got.double() - y).abs().max().item() <= limit, where
        # Where two positions match equally well to rounding, either may win. Then neither takes a gradient here.
        same = won == winners
        assert same.float().mean() > (0.98 if dtype == torch.float32 else 0.75), where
        grads = torch.autograd.grad(got, leaves, (dy * same).to(dtype))
        want = torch.autograd.grad(y, exact_leaves, dy * same, retain_graph=True)
        for name, grad, expected in zip(("x", "weight", "bias"), grads, want, strict=True):
            size = max(expected.abs().max().item(), 1.0)
            error = (grad.double() - expected).abs().max().item()
            assert grad.shape == expected.shape, where
            assert error <= LIMITS[dtype] * size, f"gradient of {name}: {error} of {size}, {where}"


def main() -> None:
    """Checks COUNT layers, from the seed on."""
    assert interpreting(), "set TRITON_INTERPRET=1"
    first, count = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    for seed in range(first, first + count):
        check(seed, "large" in sys.argv)
    print(f"{count} layers, {time.process_time():.1f} s of processor time")


if __name__ == "__main__":
    main()
