"""The file formats of exported networks: how each is written, and how it is opened again to check it.

``onnx`` runs in ONNX Runtime, ``torch`` in torch (`torch.export.load`). ``aoti`` is a package with machine code that
torch's AOTInductor compiled for this processor: load only packages of your own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epitomic.support.errors import UserError

FORMATS = {"onnx": ".onnx", "torch": ".pt2", "aoti": ".pt2"}  # format -> suffix of its files
OPSET = 18  # of ONNX
MOST_IMAGES = 65_536  # in a batch
KEY = "epitomic"  # name of the metadata in ONNX and AOTInductor files
ENTRY = "epitomic.json"  # the same in a file of torch.export
MODULES = {"onnx": ("onnx", "onnxscript", "onnxruntime")}

Runs = Callable[[Tensor], Tensor]


def check_format(to: str) -> None:
    """Raises an error unless files of this format can be written here."""
    if to not in FORMATS:
        raise UserError(f"unknown format {to!r}: choose from {', '.join(FORMATS)}")
    for module in MODULES.get(to, ()):
        if importlib.util.find_spec(module) is None:
            raise UserError(f"--to {to} needs {module}: pip install 'epitomic[{to}]'")
    if to == "aoti" and not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++")):
        raise UserError("--to aoti needs a C++ compiler, such as g++: install one, or export --to torch")


def capture(model: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """Captures a network by ``torch.export``, for batches of any size."""
    batch = torch.export.Dim("batch", min=1, max=MOST_IMAGES)
    with quiet():
        return torch.export.export(model, (example,), dynamic_shapes=({0: batch},))


def write(program: torch.export.ExportedProgram, to: str, file: Path, metadata: dict[str, Any]) -> None:
    """Writes a captured network to a file, with metadata in it, and without the paths of our sources."""
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)
    text = json.dumps(metadata, ensure_ascii=False)
    with quiet():
        if to == "onnx":
            _write_onnx(program, file, text)
        elif to == "torch":
            torch.export.save(program, file, extra_files={ENTRY: text})
        else:
            torch._inductor.aoti_compile_and_package(
                program, package_path=str(file), inductor_configs={"aot_inductor.metadata": {KEY: text}}
            )


def open_exported(to: str, file: Path) -> Runs:
    """Opens a file that `write` wrote, ready to run."""
    if to == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])
    with quiet():
        if to == "aoti":
            compiled = torch._inductor.aoti_load_package(str(file))
            return lambda x: compiled(x)
        if importlib.util.find_spec("torchao"):  # has the operators of int8 files
            import torchao.quantization.pt2e  # noqa: F401
        return torch.export.load(file).module()


def _write_onnx(program: torch.export.ExportedProgram, file: Path, metadata: str) -> None:
    import onnx

    exported = torch.onnx.export(
        program,
        dynamo=True,
        verbose=False,
        opset_version=OPSET,
        input_names=["images"],
        output_names=["scores"],
        external_data=False,
    )
    assert exported is not None
    model = exported.model_proto
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]
    onnx.helper.set_model_props(model, {KEY: metadata})
    onnx.save(model, file)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences torch's exporters, which say much that no user can act on."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
