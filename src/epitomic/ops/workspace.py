"""How much memory a call may take for intermediate results, by device."""

from __future__ import annotations

import torch

CPU_BYTES = 64 * 2**20
GPU_BYTES = 2**30  # large chunks keep a GPU busy; a sixteenth of a smaller GPU's memory
UNKNOWN_BYTES = 256 * 2**20  # other devices, and GPUs that are only traced for


def workspace_bytes(device: torch.device) -> int:
    """Returns the largest workspace of one call on this device, in bytes.

    >>> workspace_bytes(torch.device("cpu")) == CPU_BYTES
    True
    """
    if device.type == "cpu":
        return CPU_BYTES
    if device.type == "cuda" and torch.cuda.is_available():
        return min(GPU_BYTES, torch.cuda.get_device_properties(device).total_memory // 16)
    return UNKNOWN_BYTES
