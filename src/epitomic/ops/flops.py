"""Tells ``torch.utils.flop_counter`` how many operations `FlopCounterMode` reports for the kernel (`matching`).

The formulas count the operations of the layer's definition, whatever the kernel saves: D*D*W*W*C multiply-adds for each
patch and epitome (Eq. 2), and W*W*C for each response of the convolution (Eq. 1). A multiply-add counts as two
operations. So the layer counts as much as conv2d + max_pool2d of equal geometry. The gradient of the input counts as
much as the forward pass, and so does the gradient of the weights.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import math
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

from epitomic.ops import matching  # noqa: F401 (defines the operators)
from epitomic.ops.operands import Grid

COUNTER = "torch.utils.flop_counter"


def match_flops(
    x: Sequence[int], weights: Sequence[int], bias: object, gain: object, grid: Sequence[int], *_: Any, **__: Any
) -> int:
    """Returns the operations of a forward pass, from the shapes of its tensors."""
    sizes = Grid.of_numbers(grid)
    k, channels, *size = weights
    if any(p > s for p, s in zip(sizes.patch, size, strict=True)) or sizes.keep_all:  # filters that search the patch
        responses, kernel = math.prod(sizes.responses), size
    else:  # patches that search the epitome
        positions = math.prod(s - p + 1 for p, s in zip(sizes.patch, size, strict=True))
        responses, kernel = positions * math.prod(sizes.outputs), list(sizes.patch)
    return 2 * x[0] * k * channels * responses * math.prod(kernel)


def match_backward_flops(
    dy: object,
    y: object,
    positions: object,
    x: Sequence[int],
    weights: Sequence[int],
    bias: object,
    gain: object,
    grid: Sequence[int],
    needs: Sequence[bool],
    *_: Any,
    **__: Any,
) -> int:
    """Returns the operations of a backward pass: those of the forward pass for each of the two large gradients."""
    return match_flops(x, weights, bias, gain, grid) * (bool(needs[0]) + bool(needs[1]))


def _register(counter: ModuleType) -> None:
    counter.register_flop_formula(torch.ops.epitomic.match)(match_flops)
    counter.register_flop_formula(torch.ops.epitomic.match_backward)(match_backward_flops)


class _OnImport(importlib.abc.MetaPathFinder):
    """Registers the formulas when torch's counter is imported. We do not import it: it imports Triton, slowly."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Finds the counter as Python does, and registers the formulas after its import."""
        if fullname != COUNTER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _register(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if COUNTER in sys.modules:
    _register(sys.modules[COUNTER])
else:
    sys.meta_path.insert(0, _OnImport())
