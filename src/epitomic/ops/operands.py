"""The operands of the one kernel (`matching`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from epitomic.geometry import Pair, PoolGeometry, count_windows


class Grid(NamedTuple):
    """Where the patches of a call lie and which of their responses count. All sizes are (height, width).

    Attributes:
        patch: P, the size of the patches.
        stride: Step from one patch to the next.
        before: Rows and columns from the start of the first patch to the input. Zeros surround the input.
        outputs: Number of patches of an image.
        skipped: Response r of patch i has the number i * stride + r - skipped.
        responses: A response counts if its number is at least 0 and below this.
        keep_all: Whether the kernel returns all responses that count, not the largest of each patch. Then the stride is
            D and nothing is skipped.
    """

    patch: Pair
    stride: Pair
    before: Pair
    outputs: Pair
    skipped: Pair
    responses: Pair
    keep_all: bool = False

    @classmethod
    def of_patches(cls, size: Sequence[int], epitome: Sequence[int], kernel: Pair, stride: Pair, padding: Pair) -> Grid:
        """Returns the grid of Eq. 2: patches of the filters' size, whose responses all count.

        Args:
            size: Height and width of the input.
            epitome: V, the size of the mini-epitomes.
            kernel: W, the size of their filters.
            stride: Step of the patches.
            padding: Rows and columns of zeros on each side of the input.
        """
        padded = size[0] + 2 * padding[0], size[1] + 2 * padding[1]
        outputs, pool = count_windows(padded, kernel, stride), count_windows(epitome, kernel, (1, 1))
        last = (outputs[0] - 1) * stride[0], (outputs[1] - 1) * stride[1]
        return cls(kernel, stride, padding, outputs, (0, 0), (last[0] + pool[0], last[1] + pool[1]))

    @classmethod
    def of_windows(
        cls, size: Sequence[int], outputs: Pair, kernel: Pair, padding: Pair, geometry: PoolGeometry
    ) -> Grid:
        """Returns the grid of Eq. 1: patches that hold all that one pooling window of filters sees.

        Args:
            size: Height and width of the input.
            outputs: Height and width of the output.
            kernel: W, the size of the filters, whose step is 1.
            padding: Rows and columns of zeros on each side of the input.
            geometry: The sizes of the pooling.
        """
        (wh, ww), (dh, dw), (above, left) = kernel, geometry.pool, geometry.pool_padding
        return cls(
            patch=(wh + dh - 1, ww + dw - 1),
            stride=geometry.pool_stride,
            before=(padding[0] + above, padding[1] + left),
            outputs=outputs,
            skipped=geometry.pool_padding,
            responses=(size[0] + 2 * padding[0] - wh + 1, size[1] + 2 * padding[1] - ww + 1),
        )

    @classmethod
    def of_tiles(cls, size: Sequence[int], kernel: Pair, tile: Pair, padding: Pair) -> Grid:
        """Returns the grid of a plain convolution: patches that see one tile of D x D responses, all of them kept.

        Args:
            size: Height and width of the input.
            kernel: W, the size of the filters, whose step is 1.
            tile: D, the size of the tiles.
            padding: Rows and columns of zeros on each side of the input.
        """
        (wh, ww), (dh, dw) = kernel, tile
        responses = size[0] + 2 * padding[0] - wh + 1, size[1] + 2 * padding[1] - ww + 1
        outputs = -(-responses[0] // dh), -(-responses[1] // dw)
        return cls((wh + dh - 1, ww + dw - 1), tile, padding, outputs, (0, 0), responses, keep_all=True)

    def numbers(self) -> list[int]:
        """Returns the grid as a list of 13 numbers, as the operator takes it."""
        return [*(v for pair in self[:6] for v in pair), int(self.keep_all)]

    @classmethod
    def of_numbers(cls, numbers: Sequence[int]) -> Grid:
        """Reads what `numbers` returned."""
        a, b, c, d, e, f = ((numbers[i], numbers[i + 1]) for i in range(0, 12, 2))
        return cls(a, b, c, d, e, f, bool(numbers[12]))


class Operands(NamedTuple):
    """One call of the kernel. The tensors have one dtype and device, and all but x are dense.

    The larger of patch and weights is the data of the minimal filtering problem F(D, W), the smaller one is its filter:
    D = |P - S| + 1 and V = max(P, S). In Eq. 2 the weights are epitomes and larger than the patches, in Eq. 1 they are
    filters and smaller.

    Attributes:
        x: Input, (N, H, W, C). It may be a view of dense (N, C, H, W) data, as a copy would take much memory.
        weights: Mini-epitomes or filters, (K, C, S, S), contiguous or channels_last.
        bias: Biases, (K,), or None.
        gain: Gain of each filter, (K, D*D), or None. With it, the mean of each patch's P*P*C values is subtracted, and
            all patches lie inside the input.
        grid: Where the patches lie, and which of their responses count.
    """

    x: Tensor
    weights: Tensor
    bias: Tensor | None
    gain: Tensor | None
    grid: Grid

    @property
    def pool(self) -> Pair:
        """D, height and width of the window of positions under one maximum."""
        (ph, pw), (sh, sw) = self.grid.patch, self.weights.shape[2:]
        return abs(ph - sh) + 1, abs(pw - sw) + 1

    @property
    def patches(self) -> tuple[int, int, int]:
        """Number of images, rows and columns of patches, (N, oh, ow)."""
        return self.x.shape[0], *self.grid.outputs

    @property
    def output(self) -> tuple[int, int, int, int]:
        """Shape of the result, (N, oh, ow, K)."""
        size = self.grid.responses if self.grid.keep_all else self.grid.outputs
        return self.x.shape[0], *size, self.weights.shape[0]

    @property
    def winners(self) -> tuple[int, int, int, int]:
        """Shape of the positions, (N, oh, ow, K). They are empty where all responses are kept."""
        return (0, 0, 0, 0) if self.grid.keep_all else self.output


Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def is_channels_last(x: Tensor) -> bool:
    """Whether ``x`` is channels_last. With one channel, both formats hold the same data, and the stride decides."""
    if x.is_contiguous():
        return x.shape[1] == 1 and x.stride(1) == 1 and x.shape[2] * x.shape[3] > 1
    return x.is_contiguous(memory_format=torch.channels_last)
