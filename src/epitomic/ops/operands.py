"""What the one kernel works on."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from epitomic.geometry import Pair


class Operands(NamedTuple):
    """One call of the kernel. All tensors but x are dense; one dtype and device.

    Attributes:
        x: (N, H, W, C), or a view as such of dense (N, C, H, W) data: a copy would be most of the memory of a step.
        epitomes: (K, C, V, V); D = V - W + 1.
        bias: (K,) or None.
        gain: (K, D*D) or None. With it, each patch is centred to zero mean over its W*W*C values.
        kernel: W, height and width of the patches.
        stride: Step of the patches.
    """

    x: Tensor
    epitomes: Tensor
    bias: Tensor | None
    gain: Tensor | None
    kernel: Pair
    stride: Pair


Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]
