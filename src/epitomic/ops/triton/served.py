"""Whether the Triton kernels can serve a call. This module does not import Triton."""

from __future__ import annotations

import importlib.util
import math
import os
from functools import cache

import torch

from epitomic.geometry import Pair
from epitomic.ops.transforms import MAX_POINTS

TRITON = ("triton", "triton_winograd")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MAX_POSITIONS = 256  # winners are bytes
MAX_ELEMENTS = 2**31  # of a tensor: offsets are 32-bit integers
CAPABILITY = (8, 0)  # of an NVIDIA GPU: the oldest that the kernels are compiled for in the tests


def why_not_triton(
    algorithm: str, pool: Pair, points: Pair, elements: int, dtype: torch.dtype, device: torch.device
) -> str | None:
    """Returns why ``"triton"`` or ``"triton_winograd"`` cannot serve a call of this kind, or None if it can.

    Args:
        algorithm: One of `TRITON`.
        pool: D, the positions under one maximum.
        points: W/e + D - 1, the points of the Winograd transforms.
        elements: Number of elements of the largest tensor, input or output.
        dtype: The dtype to compute in.
        device: Where the tensors are.
    """
    if dtype not in DTYPES:
        return f"it needs float32, float16 or bfloat16, and the input is {dtype}"
    if algorithm == "triton_winograd" and max(points) > MAX_POINTS:
        return f"it serves at most {MAX_POINTS} points W/e + D - 1 per axis, and here they are {points}"
    if math.prod(pool) > MAX_POSITIONS:
        return f"it serves at most {MAX_POSITIONS} positions D * D, and here they are {pool[0]} * {pool[1]}"
    if elements >= MAX_ELEMENTS:
        return f"it serves tensors of fewer than 2^31 elements, and here one has {elements}"
    return why_no_triton(device)


def why_no_triton(device: torch.device) -> str | None:
    """Returns why no Triton kernel runs on this device, or None if it does."""
    if not has_triton():
        return "it needs the package triton, which is not installed"
    if device.type == "cpu" and interpreting():
        return None
    if device.type != "cuda":
        return f"it needs a CUDA or ROCm device, and the input is on {device.type}"
    return _why_not_gpu(device.index)


@cache
def _why_not_gpu(index: int | None) -> str | None:
    """Returns why this GPU is not served. A GPU that is only traced for has no properties and counts as served."""
    if torch.version.hip or not torch.cuda.is_available():
        return None
    got = torch.cuda.get_device_capability(index)
    if got < CAPABILITY:
        return (
            f"it needs compute capability {CAPABILITY[0]}.{CAPABILITY[1]} or later, and this GPU has {got[0]}.{got[1]}"
        )
    return None


@cache
def has_triton() -> bool:
    """Whether the package triton is installed."""
    return importlib.util.find_spec("triton") is not None


def interpreting() -> bool:
    """Whether Triton's interpreter is on, which runs kernels on CPU tensors, slowly. The tests use it."""
    return os.environ.get("TRITON_INTERPRET") == "1"
