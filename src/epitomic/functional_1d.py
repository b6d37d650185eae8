"""The functions over sequences: those over images, on images of one row."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from epitomic.functional import epitomic_conv2d, max_pool_conv2d


def epitomic_conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_size: int,
    pool_size: int | None = None,
    stride: int | None = None,
    padding: int | str = 0,
    epitome_stride: int = 1,
    groups: int = 1,
    normalize: bool = False,
    eps: float = 0.01,
    algorithm: str = "auto",
    return_positions: bool = False,
) -> Any:
    """Finds the best match of each piece of a sequence in each epitome: `epitomic_conv2d` with one axis.

    Args:
        input: Sequences, (N, C, L), or one sequence, (C, L).
        weight: The epitomes, (K, C / groups, V).
        bias: One value per output channel, added after the maximum.
        kernel_size: W, the length of the filters in the epitomes.
        pool_size: D. One maximum is taken over D neighbouring filters. None means one over the whole epitome.
        stride: Step from one piece of the input to the next. None means ``pool_size``.
        padding: Zeros added at each end, ``"same"`` (with a stride of 1) or ``"valid"``.
        epitome_stride: Step from one filter of an epitome to the next.
        groups: Number of groups of channels, as in ``conv1d``.
        normalize: Whether to normalise the mean and contrast of each filter (Eq. 3).
        eps: lambda of Eq. 3.
        algorithm: See `epitomic_conv2d`.
        return_positions: Whether to return, too, where in the epitome each maximum was.

    Returns:
        The responses, (N, K * m, ol), and with ``return_positions`` also the positions, an int64 tensor of that shape.

    Example:
        >>> import torch
        >>> epitomic_conv1d(torch.randn(8, 1, 100), torch.randn(16, 1, 12), kernel_size=9, pool_size=4).shape
        torch.Size([8, 16, 23])
    """
    result = epitomic_conv2d(  # type: ignore[call-overload]
        as_rows("input", input),
        as_rows("weight", weight),
        bias,
        kernel_size=(1, kernel_size),
        pool_size=None if pool_size is None else (1, pool_size),
        stride=None if stride is None else (1, stride),
        padding=padding if isinstance(padding, str) else (0, padding),
        epitome_stride=(1, epitome_stride),
        groups=groups,
        normalize=normalize,
        eps=eps,
        algorithm=algorithm,
        return_positions=return_positions,
    )
    return from_rows(result)


def max_pool_conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    pool_size: int,
    pool_stride: int | None = None,
    pool_padding: int = 0,
    stride: int = 1,
    padding: int | str = 0,
    groups: int = 1,
    ceil_mode: bool = False,
    normalize: bool = False,
    eps: float = 0.01,
    algorithm: str = "auto",
    return_positions: bool = False,
) -> Any:
    """Convolution followed by max-pooling over sequences, in one call: `max_pool_conv2d` with one axis.

    Args:
        input: Sequences, (N, C, L), or one sequence, (C, L).
        weight: The filters, (K, C / groups, W).
        bias: One value per output channel.
        pool_size: D. One maximum is taken over D neighbouring positions.
        pool_stride: Step from one pooling window to the next. None means ``pool_size``.
        pool_padding: Positions by which windows hang over each end. What lies outside is left out of the maximum.
        stride: Step of the convolution.
        padding: Zeros added at each end, ``"same"`` (with a stride of 1) or ``"valid"``.
        groups: Number of groups of channels, as in ``conv1d``.
        ceil_mode: Whether windows that hang over the end count, too.
        normalize: Whether to normalise the mean and contrast of each filter (Eq. 3).
        eps: lambda of Eq. 3.
        algorithm: See `max_pool_conv2d`.
        return_positions: Also return where in its window each maximum was.

    Returns:
        The responses, (N, K, ol), and with ``return_positions`` also the positions, an int64 tensor of that shape.

    Example:
        >>> import torch
        >>> max_pool_conv1d(torch.randn(8, 1, 100), torch.randn(16, 1, 9), pool_size=4).shape
        torch.Size([8, 16, 23])
    """
    result = max_pool_conv2d(  # type: ignore[call-overload]
        as_rows("input", input),
        as_rows("weight", weight),
        bias,
        pool_size=(1, pool_size),
        pool_stride=None if pool_stride is None else (1, pool_stride),
        pool_padding=(0, pool_padding),
        stride=(1, stride),
        padding=padding if isinstance(padding, str) else (0, padding),
        groups=groups,
        ceil_mode=ceil_mode,
        normalize=normalize,
        eps=eps,
        algorithm=algorithm,
        return_positions=return_positions,
    )
    return from_rows(result)


def as_rows(name: str, sequences: Tensor) -> Tensor:
    """Makes images of one row of sequences: (N, C, L) -> (N, C, 1, L), or (C, L) -> (C, 1, L)."""
    if not isinstance(sequences, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(sequences).__name__}")
    if sequences.dim() != 3 and (name == "weight" or sequences.dim() != 2):
        fits = "(N, C, L) or (C, L)" if name == "input" else "(K, C / groups, V) or (K, C / groups, W)"
        raise ValueError(f"{name} must be {fits}, got shape {tuple(sequences.shape)}")
    return sequences.unsqueeze(-2)


def from_rows(result: Any) -> Any:
    """Undoes `as_rows` in responses, or in responses and positions."""
    return tuple(t.squeeze(-2) for t in result) if isinstance(result, tuple) else result.squeeze(-2)
