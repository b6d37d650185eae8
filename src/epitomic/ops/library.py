"""The compiled library: the structs of its interface, and whether this machine can use it.

The environment variable ``EPITOMIC_NATIVE`` is ``0`` to turn it off, the name of a target (``baseline``, ``avx2``,
``avx512``) to use that one, or a path that ends in ``.so`` to load another build of the library.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import NamedTuple

import torch

ABI = 5
LIBRARY = Path(__file__).parent.parent / "native" / "epitomic_kernel.so"
NOTE = LIBRARY.with_name("not_built.txt")  # setup.py writes the reason here if it builds no library

# The passes of the kernel: EpitomicPass of native/call.h.
PACK, PACK_TRANSPOSED, FORWARD, AFFINE, INPUT, WEIGHTS, UNPACK = range(7)
PASSES = 7


class Problem(ctypes.Structure):
    """``EpitomicProblem`` of native/call.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in "nhwck"),
        *((name, ctypes.c_int64 * 2) for name in ("patch", "weight", "stride", "before")),
        *((name, ctypes.c_int64 * 2) for name in ("grid", "skipped", "responses")),
        *((name, ctypes.c_int64) for name in ("all", "threads", "dx_planes", "weights_last")),
        *((name, ctypes.c_float * 128) for name in ("patch_map", "weight_map", "output_map")),
    )


class Plan(ctypes.Structure):
    """``EpitomicPlan`` of native/call.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("panel", "block", "slices", "output_groups", "channel_groups")),
        *((name, ctypes.c_int64) for name in ("u", "u_transposed")),
        ("workspace", ctypes.c_int64 * PASSES),
        ("tasks", ctypes.c_int64 * PASSES),
    )


TENSORS = (
    *("x", "weights", "bias", "gain", "patch_mean", "filter_mean", "dy", "u", "u_transposed", "y", "positions"),
    *("dy_scaled", "sums", "dx", "du", "dweights"),
)


class Pointers(ctypes.Structure):
    """``EpitomicTensors`` of native/call.h."""

    _fields_ = (*((name, ctypes.c_void_p) for name in TENSORS), ("group", ctypes.c_int64))


class Run(ctypes.Structure):
    """``EpitomicRun`` of native/call.h."""

    _fields_ = (
        ("target", ctypes.c_char_p),
        *((name, ctypes.c_void_p) for name in ("problem", "plan", "tensors", "workspace")),
        *((name, ctypes.c_int64) for name in ("floats", "which", "threads", "tasks")),
    )


class Native(NamedTuple):
    """The loaded library, its target, and the reason for this target or for having no library."""

    library: ctypes.CDLL | None
    target: str
    reason: str


def _load() -> Native:
    """Loads the library, or says why it cannot."""
    wanted, path = os.environ.get("EPITOMIC_NATIVE", "1"), LIBRARY
    if wanted == "0":
        return Native(None, "", "turned off by EPITOMIC_NATIVE=0")
    if wanted.endswith(".so"):
        wanted, path = "1", Path(wanted)
    if not path.exists():
        return Native(None, "", f"not built: {_why_not_built()}")
    try:
        library = ctypes.CDLL(str(path))
        library.epitomic_abi.restype = library.epitomic_sizes.restype = ctypes.c_int64
        library.epitomic_targets.restype = ctypes.c_char_p
        sizes = sum(ctypes.sizeof(s) << 16 * i for i, s in enumerate((Problem, Plan, Pointers, Run)))
        if library.epitomic_abi() != ABI or library.epitomic_sizes() != sizes:
            return Native(None, "", "built for another version of epitomic: install it again")
        targets = library.epitomic_targets().decode().split()
    except (OSError, AttributeError) as error:
        return Native(None, "", f"cannot be loaded: {error}")
    usable = [t for t in targets if library.epitomic_supported(t.encode())]
    if wanted != "1":
        if wanted not in usable:
            return Native(None, "", f"EPITOMIC_NATIVE={wanted}, and this machine has {', '.join(usable)}")
        return Native(library, wanted, f"asked for by EPITOMIC_NATIVE={wanted}")
    return Native(library, usable[-1], f"best of {', '.join(targets)} for this processor")


def _why_not_built() -> str:
    """Returns what the build said: switched off, no compiler, or how it failed."""
    try:
        return NOTE.read_text(encoding="utf-8").strip()
    except OSError:
        return "this copy of epitomic was never built; install it with pip where there is a C++ compiler"


NATIVE = _load()


def why_not_native(dtype: torch.dtype, device: torch.device) -> str | None:
    """Returns why the native kernel cannot serve a call of this kind, or None if it can."""
    if NATIVE.library is None:
        return f"the native kernel is {NATIVE.reason}"
    if dtype != torch.float32 or device.type != "cpu":
        return f"the native kernel needs float32 on CPU, and this is {dtype} on {device.type}"
    return None
