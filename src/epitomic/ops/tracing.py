"""Whether a call is traced, exported, transformed or differentiated in forward mode. Each needs plainer operators."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def in_forward_mode() -> bool:
    """Whether forward-mode differentiation is on, by ``forward_ad`` or ``torch.func.jvp``."""
    return forward_ad._current_level >= 0


def needs_plain_autograd() -> bool:
    """Whether our autograd functions would fail: in ``torch.jit``, ONNX's older exporter and forward mode."""
    return torch._C._get_tracing_state() is not None or in_forward_mode()


def needs_known_operators() -> bool:
    """Whether our operators would fail: in all of the above, in ``torch.export`` and under ``torch.func``."""
    return needs_plain_autograd() or torch.compiler.is_exporting() or torch._C._are_functorch_transforms_active()


def is_in_tensor_mode() -> bool:
    """Whether new tensors are fake or traced, because a ``TorchDispatchMode`` is on."""
    return torch._C._len_torch_dispatch_stack() > 0
