"""Compiles the Triton kernels for GPUs that are not here, and reads registers, spills and instructions from the result.

It needs Triton, whose wheel brings NVIDIA's assembler and disassembler. AMD's code is read as assembly. No driver and
no GPU are needed.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from epitomic.bench.gpu_launches import LAYERS, PRECISIONS, Planned, plan
from epitomic.ops.triton.served import TRITON, interpreting

TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.uint8: "*u8",
}
MATRIX = ("match_forward", "input_gradient", "weight_gradient", "multiply_points")  # kernels that multiply matrices


class Target(NamedTuple):
    """A GPU to compile for.

    Attributes:
        backend: ``"cuda"`` or ``"hip"``.
        arch: Its architecture, as Triton names it.
        warp: Threads of a warp.
        shared: Bytes of shared memory that a program may have.
    """

    backend: str
    arch: int | str
    warp: int
    shared: int


TARGETS = {
    "sm_80": Target("cuda", 80, 32, 163 * 1024),
    "sm_90": Target("cuda", 90, 32, 227 * 1024),
    "gfx942": Target("hip", "gfx942", 64, 64 * 1024),
}


class Compiled(NamedTuple):
    """What became of one kernel with one set of tiles and constants.

    Attributes:
        kernel: Its name.
        layer: The layer that launches it.
        precision: How the layer computes.
        target: The GPU.
        tile: Its tile, rows x columns or rows x columns x terms.
        warps: Warps of a program.
        registers: Registers of a thread; AMD's vector registers.
        spills: Bytes of a thread's stack (NVIDIA), or registers that were spilled (AMD).
        shared: Bytes of shared memory.
        matrix: Number of matrix instructions.
    """

    kernel: str
    layer: str
    precision: str
    target: str
    tile: str
    warps: int
    registers: int
    spills: int
    shared: int
    matrix: int

    @property
    def problems(self) -> list[str]:
        """What is wrong with it."""
        limit = TARGETS[self.target].shared
        found = [f"spills {self.spills}"] if self.spills else []
        if self.shared > limit:
            found.append(f"takes {self.shared} bytes of shared memory, and there are {limit}")
        if self.kernel in MATRIX and self.precision != "float32" and not self.matrix:
            found.append("has no matrix instructions")
        return found


class Job(NamedTuple):
    """A kernel to compile, a layer that launches it, and the GPU to compile it for."""

    layer: str
    precision: str
    target: str
    planned: Planned


def jobs(
    layers: Iterable[str] = tuple(LAYERS),
    precisions: Iterable[str] = tuple(PRECISIONS),
    targets: Iterable[str] = tuple(TARGETS),
) -> list[Job]:
    """Returns every kernel that these layers launch on these GPUs, each set of tiles and constants once."""
    found: dict[Any, Job] = {}
    names = list(itertools.product(precisions, layers, TRITON, targets))
    for precision, layer, algorithm, target in names:
        for planned in plan(LAYERS[layer], algorithm, precision, amd=TARGETS[target].backend == "hip"):
            found.setdefault((target, _key(planned)), Job(layer, precision, target, planned))
    return list(found.values())


def compile_all(todo: Iterable[Job]) -> Iterator[Compiled]:
    """Compiles each kernel."""
    assert not interpreting(), "the interpreter is on: unset TRITON_INTERPRET"
    return map(compile_one, todo)


def compile_one(job: Job) -> Compiled:
    """Compiles one kernel as its first launch would."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from epitomic.ops.triton import fused_kernels, winograd_kernels

    launch, target = job.planned.launch, TARGETS[job.target]
    function = getattr(fused_kernels, launch.kernel, None) or getattr(winograd_kernels, launch.kernel)
    signature, constants, attributes = _arguments(function.arg_names, job.planned, amd=target.backend == "hip")
    built = triton.compile(
        ASTSource(function, signature, constants, attributes),
        target=GPUTarget(target.backend, target.arch, target.warp),
        options={"num_warps": launch.warps, "num_stages": launch.stages, **launch.options},
    )
    read = _read_nvidia(built.asm["cubin"]) if target.backend == "cuda" else _read_amd(built.asm["amdgcn"])
    tile = " x ".join(str(launch.constants[f"BLOCK_{axis}"]) for axis in "MNK" if f"BLOCK_{axis}" in launch.constants)
    place = launch.kernel, job.layer, job.precision, job.target, tile, launch.warps
    return Compiled(*place, registers=read[0], spills=read[1], shared=built.metadata.shared, matrix=read[2])


def _arguments(
    names: list[str], planned: Planned, *, amd: bool
) -> tuple[dict[str, str], dict[str, Any], dict[Any, Any]]:
    """Returns types, constants and attributes of the arguments, as Triton specialises a kernel at its launch."""
    launch, tensors = planned
    signature: dict[str, str] = {}
    constants: dict[str, Any] = dict(launch.constants)
    attributes: dict[Any, Any] = {}
    pointers = iter(tensors)
    for place, name in enumerate(names):
        if name in launch.constants:
            signature[name] = "constexpr"
        elif name not in launch.numbers:
            tensor = next(pointers)
            signature[name] = TYPES[tensor.dtype]
            attributes[(place,)] = [["tt.divisibility", 16]]  # torch aligns memory
            if amd and tensor.numel() * tensor.element_size() < 2**31:
                attributes[(place,)].append(["tt.pointer_range", 32])
        elif launch.numbers[name] == 1:
            signature[name], constants[name] = "constexpr", 1
        else:
            signature[name] = "i32"
            if launch.numbers[name] % 16 == 0:
                attributes[(place,)] = [["tt.divisibility", 16]]
    return signature, constants, attributes


def _key(planned: Planned) -> Any:
    launch, tensors = planned
    constants = tuple(sorted(launch.constants.items()))
    return launch.kernel, constants, launch.warps, launch.stages, tuple(t.dtype for t in tensors)


def _read_nvidia(cubin: bytes) -> tuple[int, int, int]:
    """Returns registers, bytes of stack and local memory, and matrix instructions of a binary."""
    import triton.backends.nvidia

    tools = Path(triton.backends.nvidia.__file__).parent / "bin"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.cubin")
        Path(path).write_bytes(cubin)
        usage = _output(str(tools / "cuobjdump"), "-res-usage", path)
        code = _output(str(tools / "nvdisasm"), path)
    numbers = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    return numbers["REG"], numbers["STACK"] + numbers["LOCAL"], len(re.findall(r"\bHG?MMA\b", code))


def _read_amd(assembly: str) -> tuple[int, int, int]:
    """Returns vector registers, spilled registers and matrix instructions of an assembly."""

    def number(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", assembly)
        assert found is not None, name
        return int(found[1])

    spills = number("vgpr_spill_count") + number("sgpr_spill_count")
    return number("vgpr_count"), spills, len(re.findall(r"\bv_mfma_", assembly))


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
