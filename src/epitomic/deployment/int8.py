"""Quantisation to int8: by ONNX Runtime's static quantisation, and by PT2E of torchao for files of torch.

Both take the ranges of all values from calibration images. The network must be in a convolution form, because
Winograd's transforms lose too much in 8 bits. Convolutions and matrix products are quantised; the maximum is exact.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from epitomic.deployment.formats import KEY, quiet
from epitomic.support.errors import UserError

BATCH = 32
LEAST = 8  # calibration images: fewer say too little about the ranges


def check(to: str, calibration: Tensor) -> None:
    """Raises an error unless a network can be quantised for this format, with these images."""
    if to == "aoti":
        raise UserError("--int8 works with --to onnx and --to torch, not with --to aoti")
    if to == "torch" and importlib.util.find_spec("torchao") is None:
        raise UserError("--int8 with --to torch needs torchao: pip install 'epitomic[pt2e]'")
    if len(calibration) < LEAST:
        raise UserError(f"--int8 needs at least {LEAST} calibration images, got {len(calibration)}")


def has_vnni() -> bool:
    """Whether the processor multiplies 8-bit integers itself (VNNI). Without it, weights take 7 bits."""
    return torch.cpu._is_vnni_supported()


def quantise_onnx(file: Path, calibration: Tensor, *, reduce_range: bool | None = None) -> None:
    """Quantises an ONNX file in place, with 8-bit weights per channel.

    Args:
        file: The file.
        calibration: Images as input.
        reduce_range: Whether weights take 7 bits, so that sums of products do not overflow on processors without VNNI
            (default: as this processor needs).
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    model = onnx.load(file)
    name, batches = model.graph.input[0].name, _batches(calibration)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Any] | None:
            batch = next(batches, None)
            return None if batch is None else {name: batch.numpy()}

    quantised = file.with_suffix(".int8.onnx")
    reduce = not has_vnni() if reduce_range is None else reduce_range
    with quiet():
        quantize_static(
            file,
            quantised,
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=reduce,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    written = onnx.load(quantised)
    kept = {entry.key: entry.value for entry in model.metadata_props if entry.key == KEY}
    onnx.helper.set_model_props(written, kept)
    onnx.save(written, file)


def quantise_program(program: torch.export.ExportedProgram, calibration: Tensor) -> torch.export.ExportedProgram:
    """Returns a captured network quantised by PT2E, with the quantizer for x86 processors."""
    logging.getLogger("torchao").setLevel(logging.ERROR)
    with quiet(), torch.no_grad():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

        quantizer = x86.X86InductorQuantizer()
        quantizer.set_global(x86.get_default_x86_inductor_quantization_config(reduce_range=not has_vnni()))
        prepared = prepare_pt2e(copy.deepcopy(program).module(), quantizer)
        for batch in _batches(calibration):
            prepared(batch)
        quantised = convert_pt2e(prepared)
        batch_size = torch.export.Dim("batch", min=1, max=65_536)
        return torch.export.export(quantised, (calibration[:2].float(),), dynamic_shapes=({0: batch_size},))


def _batches(images: Tensor) -> Iterator[Tensor]:
    return iter(images.float().split(BATCH))
