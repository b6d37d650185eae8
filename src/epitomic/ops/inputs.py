"""Handles the arguments of all layers: checks, padding, dtypes, autocast, and images without a batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from epitomic.geometry import Pair, Size, as_pair

Computed = tuple[Tensor, Tensor | None]


def check_tensors(input: Tensor, weight: Tensor, bias: Tensor | None, *, holds: str) -> None:
    """Checks types, devices, dtypes and numbers of dimensions. ``holds`` says what the weight must hold."""
    for name, tensor in (("input", input), ("weight", weight), ("bias", bias)):
        if tensor is None and name == "bias":
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must be of a floating-point dtype, got {tensor.dtype}")
        if tensor.device != input.device:
            raise ValueError(f"{name} is on {tensor.device} and input on {input.device}: move them to one device")
        if tensor.dtype != input.dtype and (input.dtype == torch.float64 or not _autocast_enabled(input)):
            raise TypeError(f"{name} is {tensor.dtype} and input {input.dtype}: convert one to the other's dtype")
    if input.dim() not in (3, 4):
        raise ValueError(f"input must be (N, C, H, W) or (C, H, W), got shape {tuple(input.shape)}")
    if weight.dim() != 4:
        raise ValueError(f"weight must hold the {holds}, got shape {tuple(weight.shape)}")
    if bias is not None and bias.dim() != 1:
        raise ValueError(f"bias must have one dimension, got shape {tuple(bias.shape)}")


def check_channels(
    input: Tensor, weight: Tensor, bias: Tensor | None, groups: int, outputs: int, *, one: str, many: str
) -> None:
    """Checks the channels of all tensors against each other.

    Args:
        input: (..., C, H, W).
        weight: (K, C / groups, ...).
        bias: (K * outputs,) or None.
        groups: Groups of channels.
        outputs: Output channels of each of the K weights.
        one: Name of one of the weights.
        many: Name of several of them.
    """
    if 0 in weight.shape:
        raise ValueError(f"weight must hold at least one {one} of one channel, got shape {tuple(weight.shape)}")
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1 or weight.shape[0] % groups:
        raise ValueError(f"groups must divide the {weight.shape[0]} {many} of weight, got {groups!r}")
    if input.shape[-3] != weight.shape[1] * groups:
        each = f" in each of {groups} groups" if groups > 1 else ""
        raise ValueError(f"input has {input.shape[-3]} channels and the {many} of weight have {weight.shape[1]}{each}")
    channels = weight.shape[0] * outputs
    if bias is not None and bias.shape[0] != channels:
        raise ValueError(f"bias must have one value for each of the {channels} output channels, got {bias.shape[0]}")


def resolve_padding(padding: Size | str, kernel: Pair, stride: Pair, dilation: Pair) -> tuple[int, int, int, int]:
    """Returns the rows and columns of zeros around the input: left, right, top and bottom, as ``F.pad`` takes them.

    ``"same"`` keeps the size of the input, which needs a stride of 1. ``"valid"`` is no padding.
    """
    if padding == "valid":
        return 0, 0, 0, 0
    if padding == "same":
        if stride != (1, 1):
            raise ValueError(f"padding='same' needs a stride of 1, got stride={stride}")
        (th, tw) = ((w - 1) * d for w, d in zip(kernel, dilation, strict=True))
        return tw // 2, tw - tw // 2, th // 2, th - th // 2
    if isinstance(padding, str):
        raise ValueError(f"padding must be an int, a pair of ints, 'same' or 'valid', got {padding!r}")
    height, width = as_pair("padding", padding, minimum=0)
    return width, width, height, height


def pad_unevenly(input: Tensor, around: tuple[int, int, int, int]) -> tuple[Tensor, Pair]:
    """Pads the input if opposite sides need different padding. Returns it and the padding that is still to be added."""
    left, right, top, bottom = around
    return (input, (top, left)) if (left, top) == (right, bottom) else (F.pad(input, around), (0, 0))


def compute_dtype(input: Tensor) -> torch.dtype:
    """Returns the dtype of the result: autocast's where autocast is on, else the input's, as for ``conv2d``."""
    if _autocast_enabled(input) and input.dtype != torch.float64:
        return torch.get_autocast_dtype(input.device.type)
    return input.dtype


def on_batch(input: Tensor, dtype: torch.dtype, compute: Callable[[Tensor], Computed]) -> Computed:
    """Calls ``compute`` without autocast on a batch in ``dtype``. One image becomes a batch of one.

    The responses are returned in the dtype of `compute_dtype`.
    """
    result = compute_dtype(input)
    batch = (input if input.dim() == 4 else input.unsqueeze(0)).to(dtype)
    with torch.autocast(input.device.type, enabled=False) if _autocast_enabled(input) else contextlib.nullcontext():
        y, positions = compute(batch)
    y = y.to(result)
    if input.dim() == 3:
        y, positions = y.squeeze(0), None if positions is None else positions.squeeze(0)
    return y, positions


def returned(y: Tensor, positions: Tensor | None, return_positions: bool) -> Tensor | tuple[Tensor, Tensor]:
    """Returns the responses, and with ``return_positions`` also the positions, as int64 in the same memory format."""
    if not return_positions:
        return y
    assert positions is not None
    positions = positions.long()
    return y, positions.contiguous() if y.is_contiguous() else positions


def by_groups(
    groups: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    compute: Callable[[Tensor, Tensor, Tensor | None], Computed],
) -> Computed:
    """Calls ``compute`` for each group of channels and concatenates the results."""
    if groups == 1:
        return compute(x, weight, bias)
    biases = [None] * groups if bias is None else bias.chunk(groups)
    parts = list(map(compute, x.chunk(groups, 1), weight.chunk(groups), biases))
    positions = [p for _, p in parts if p is not None]
    return torch.cat([y for y, _ in parts], 1), torch.cat(positions, 1) if positions else None


def _autocast_enabled(input: Tensor) -> bool:
    device = input.device.type  # some devices, such as meta, have no autocast
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
