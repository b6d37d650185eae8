"""Loads, stores and operations that Triton's interpreter makes, against `counts`. A program of its own.

TRITON_INTERPRET=1 python -m tests.ops.triton.counted
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor

from epitomic import epitomic_conv2d, max_pool_conv2d
from epitomic.ops.triton import counts
from epitomic.ops.triton.launches import Launch
from epitomic.ops.triton.served import interpreting

SHAPES: tuple[tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    (epitomic_conv2d, (3, 5, 13, 11), (7, 5, 5, 4), {"kernel_size": (3, 2), "pool_size": (3, 3), "normalize": True}),
    (epitomic_conv2d, (2, 40, 9, 9), (70, 40, 4, 4), {"kernel_size": 3, "stride": 1, "padding": 1}),
    (
        max_pool_conv2d,
        (2, 17, 10, 12),
        (18, 17, 3, 3),
        {"pool_size": 3, "pool_stride": 2, "pool_padding": 1, "padding": 1},
    ),
)
# Many points, whose products have a kernel of their own in bfloat16.
MANY_POINTS = epitomic_conv2d, (1, 6, 9, 9), (9, 6, 6, 6), {"kernel_size": 4}
CASES = [(shape, dtype) for shape in SHAPES for dtype in (torch.float32, torch.float16)] + [
    (MANY_POINTS, torch.bfloat16)
]


class Interpreted:
    """Counts what the interpreter does."""

    def __init__(self) -> None:
        self.loaded = self.stored = self.operations = 0

    def watch(self) -> Any:
        """Returns a context in which everything is counted."""
        from triton.runtime.interpreter import InterpreterBuilder

        load, store, dot = (getattr(InterpreterBuilder, f"create_{n}") for n in ("masked_load", "masked_store", "dot"))

        def size(pointers: Any) -> int:
            return pointers.get_element_ty().primitive_bitwidth // 8

        def masked_load(this: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
            self.loaded += int(mask.data.sum()) * size(pointers)
            return load(this, pointers, mask, *rest)

        def masked_store(this: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
            self.stored += int(mask.data.sum()) * size(pointers)
            return store(this, pointers, value, mask, *rest)

        def create_dot(this: Any, a: Any, b: Any, *rest: Any) -> Any:
            self.operations += 2 * a.data.shape[0] * a.data.shape[1] * b.data.shape[1]
            return dot(this, a, b, *rest)

        return mock.patch.multiple(
            InterpreterBuilder,
            create_masked_load=masked_load,
            create_masked_store=masked_store,
            create_dot=create_dot,
        )


def main() -> None:
    """Compares all launches of the shapes, in three dtypes."""
    assert interpreting(), "set TRITON_INTERPRET=1"
    from epitomic.ops.triton import fused

    torch.set_num_threads(1)
    real, kernels = fused.run, set()

    def run(launch: Launch, *tensors: Tensor, **options: Any) -> None:
        interpreted = Interpreted()
        with interpreted.watch():
            real(launch, *tensors, **options)
        counted = counts.count(launch)
        bytes_ = counts.count_bytes(launch, [t.element_size() for t in tensors])
        assert (interpreted.loaded, interpreted.stored) == bytes_, (launch, interpreted.__dict__, bytes_, counted)
        assert interpreted.operations == counted.operations, (launch, interpreted.__dict__, counted)
        kernels.add(launch.kernel)

    with mock.patch.object(fused, "run", run):
        for (function, shape, weights, options), dtype in CASES:
            for algorithm in ("triton", "triton_winograd"):
                x, w = (torch.randn(s, dtype=dtype, requires_grad=True) for s in (shape, weights))
                bias = torch.randn(weights[0], dtype=dtype, requires_grad=True)
                y = function(x, w, bias, **options, algorithm=algorithm)
                y.sum().backward()
    assert kernels == set(counts.COUNTERS), kernels
    print(f"{len(SHAPES) + 1} shapes, {len(kernels)} kernels")


if __name__ == "__main__":
    main()
