"""Compares the results of two algorithms: outputs, winners and all gradients of a random problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from epitomic.geometry import Geometry, PoolGeometry
from epitomic.ops.inputs import Computed

if TYPE_CHECKING:
    from epitomic.ops.selection import Call

# Largest error by dtype, as a share of the largest value. TF32 is float32 with the precision of float16.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}
TF32_TOLERANCE = 1e-2
UNCLEAR = {torch.float64: 1e-3, torch.float32: 1e-3}  # largest share of winners that may differ through rounding
UNCLEAR_IN_HALF = 0.05
OUTPUTS = 3  # height and width of a small problem's output
BLOCK = 64  # a small problem has the same number of channels modulo this, so kernels treat incomplete blocks alike

# Computes a layer: algorithm, input, weight, bias -> responses and positions.
Run = Callable[[str, Tensor, Tensor, Tensor | None], Computed]


class Trial(NamedTuple):
    """The tensors of one problem.

    Attributes:
        x: Input, (N, C, H, W).
        weight: (K, C / groups, ...).
        bias: One value per output channel, or None.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None

    @classmethod
    def small(
        cls, geometry: Geometry | PoolGeometry, input: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
    ) -> Trial:
        """Draws a small problem of the same kind: two images, few outputs, fewer channels.

        The global random generator is not used.

        Args:
            geometry: The sizes of the layer.
            input: The layer's input, (..., C, H, W). The problem has its memory format and device.
            weight: The layer's weights.
            bias: The layer's bias, or None.
            dtype: The dtype to compute in.
        """
        groups = input.shape[-3] // weight.shape[1]
        channels, outputs = _fewer(weight.shape[1]), groups * _fewer(weight.shape[0] // groups)
        height, width = (_shortest(geometry, input.shape[-2:], axis) for axis in range(2))
        draws = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=draws).to(input.device, dtype)

        x = normal(2, groups * channels, height, width)
        if input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last) and not input.is_contiguous():
            x = x.contiguous(memory_format=torch.channels_last)
        size = (channels * weight.shape[2] * weight.shape[3]) ** 0.5
        drawn = normal(outputs, channels, *weight.shape[2:]) / size
        return cls(x, drawn, None if bias is None else normal(outputs * (bias.shape[0] // weight.shape[0])))


def what_differs(run: Run, algorithm: str, trial: Trial, truth: str = "direct") -> str | None:
    """Compares an algorithm with ``truth`` computed in float64, forward and backward.

    Winners may differ where two responses are equal up to rounding. No gradient is passed to those places.

    Returns:
        What differed and by how much, or None if all agrees.
    """
    dtype = trial.x.dtype
    exact = torch.float32 if trial.x.device.type == "mps" else torch.float64
    tolerance = tolerance_of(dtype, trial.x.device)
    wanted, wanted_positions, wanted_inputs = _forward(run, truth, trial, exact)
    got, positions, inputs = _forward(run, algorithm, trial, dtype)
    if got.shape != wanted.shape:
        return f"the output has shape {tuple(got.shape)}, not {tuple(wanted.shape)}"
    error = _error(got.detach(), wanted.detach())
    if not error <= tolerance:
        return f"outputs differ by {error:.2g} of the largest, more than {tolerance:g}"
    same = torch.ones_like(wanted, dtype=torch.bool)
    if positions is not None and wanted_positions is not None:
        same = positions.to(torch.int64) == wanted_positions.to(torch.int64)
        share = 1 - same.double().mean().item() if exact == torch.float64 else 1 - same.float().mean().item()
        if share > UNCLEAR.get(dtype, UNCLEAR_IN_HALF) + 1 / max(1, same.numel()):
            return f"{share:.1%} of the winning positions differ"
    dy = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1)).to(wanted.device, dtype) * same
    grads = torch.autograd.grad(got, inputs, dy)
    wanted_grads = torch.autograd.grad(wanted, wanted_inputs, dy.to(exact))
    for name, grad, wanted_grad in zip(("input", "weight", "bias"), grads, wanted_grads, strict=False):
        error = _error(grad, wanted_grad)
        if not error <= 2 * tolerance:
            return f"gradients of the {name} differ by {error:.2g} of the largest, more than {2 * tolerance:g}"
    return None


def verify(call: Call, algorithm: str) -> str | None:
    """Compares an algorithm with ``"direct"`` on a small problem of the call's kind.

    Returns:
        What differed, "" if nothing did, or None if the memory was too small for the comparison.
    """
    assert isinstance(call.geometry, Geometry | PoolGeometry)

    def run(algorithm: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Computed:
        return call.run(algorithm, x, weight, bias, True)

    try:
        with torch.inference_mode(False), torch.enable_grad():
            trial = Trial.small(call.geometry, call.input, call.weight, call.bias, call.dtype)
            return what_differs(run, algorithm, trial) or ""
    except torch.OutOfMemoryError:
        return None
    except Exception as error:  # a kernel that does not compile, or fails
        return f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"


def tolerance_of(dtype: torch.dtype, device: torch.device) -> float:
    """Returns the largest error that counts as rounding, as a share of the largest value."""
    tf32 = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    return TF32_TOLERANCE if dtype == torch.float32 and device.type == "cuda" and tf32 else TOLERANCE[dtype]


def _forward(run: Run, algorithm: str, trial: Trial, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, list[Tensor]]:
    inputs = [None if t is None else t.detach().to(dtype).requires_grad_() for t in trial]
    x, weight, bias = inputs
    assert x is not None
    assert weight is not None
    with torch.enable_grad():
        y, positions = run(algorithm, x, weight, bias)
    return y, positions, [t for t in inputs if t is not None]


def _error(got: Tensor, wanted: Tensor) -> float:
    """Returns the largest difference as a share of the largest value. NaN stays NaN."""
    if not got.numel():
        return 0.0
    scale = wanted.abs().max().clamp(min=1e-30)
    return ((got.to(wanted.dtype) - wanted).abs().max() / scale).item()


def _fewer(count: int) -> int:
    """Returns a number of channels below 2 * `BLOCK` that is equal to ``count`` modulo `BLOCK`."""
    return count if count < 2 * BLOCK else BLOCK + count % BLOCK


def _shortest(geometry: Geometry | PoolGeometry, size: tuple[int, ...], axis: int) -> int:
    """Returns the smallest height or width that gives `OUTPUTS` outputs, or all outputs of an input that has fewer."""

    def outputs(n: int) -> int:
        try:
            return geometry.output_size(*(n if a == axis else size[a] for a in range(2)))[axis]
        except ValueError:
            return 0

    enough = min(OUTPUTS, outputs(size[axis]))
    return next(n for n in range(1, size[axis] + 1) if outputs(n) >= enough)
