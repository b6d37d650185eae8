"""``--compile true``: the training's forward and backward passes by ``torch.compile``.

Validation and tests run as without it. A checkpoint holds the same tensors, and a resumed run compiles the same
network for the same shapes again, so that it continues to the same bits.
"""

from __future__ import annotations

import os
import shutil

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from epitomic.models.dropout import Dropout
from epitomic.ops.triton.served import has_triton
from epitomic.support.errors import UserError

BACKEND = "inductor"  # torch's own


def check_compiler(device: torch.device) -> None:
    """Raises an error unless ``torch.compile`` can make code for this device here."""
    needs = None
    if device.type == "cpu" and not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++")):
        needs = "a C++ compiler, such as g++"
    if device.type == "cuda" and not has_triton():
        needs = "the package triton"
    if needs:
        raise UserError(f"--compile true needs {needs} on {device.type}: install it, or leave the option out")


def compiled(model: nn.Module, fabric: Fabric, example: Tensor) -> nn.Module:
    """Returns a network that is compiled at its first call, for each shape of its input.

    Dropout masks depend on the step, so they are drawn outside the compiled code. On a GPU our kernels are compared
    with plain calls before, as nothing can be compared while a network is compiled.

    Args:
        model: The network, on its device.
        fabric: Fabric for its precision.
        example: Some images for it.
    """
    check_compiler(fabric.device)
    for module in model.modules():
        if isinstance(module, Dropout):
            module.forward = torch.compiler.disable(module.forward)  # type: ignore[method-assign]
    if fabric.device.type == "cuda":
        with torch.no_grad(), fabric.autocast():
            model.eval()(example)
    made = torch.compile(model, dynamic=False, backend=BACKEND)
    assert isinstance(made, nn.Module)
    return made
