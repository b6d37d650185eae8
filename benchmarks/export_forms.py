"""The forms of exported epitomic layers in ONNX Runtime, against the exported pair: behind `surgery.exporting`.

    python benchmarks/export_forms.py --folder FILES --prepare [--only layers grid networks]
    python benchmarks/export_forms.py --folder FILES [--only layers] [--repetitions 7] [--threads 2] [--csv FILE]

The first call exports, the second one times the files of that folder, so that a quiet machine is needed only for the
second. Each row is one layer or network and one batch; its contestants take turns, and the speedup is the time of the
max-pooled counterpart over its own, within a repetition (median and quartiles).
"""

import argparse
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic import EpitomicConv2d, create_model
from epitomic.bench.cases import CASES, Case, pooling
from epitomic.bench.records import write_records
from epitomic.bench.timing import interleaved
from epitomic.support.machine import timing_facts
from epitomic.surgery.exporting import FORMS, export_form, for_export

LAYERS = ("paper layer 1", "paper layer 2", "paper layer 6", "3x3, pool 2", "5x5, pool 2", "4x4, pool 2")
GRID = [
    Case(f"{c}->{k} W {w} D {d}", c, k, w, d, d, size=24, batch=16)
    for w, d in ((2, 2), (3, 2), (5, 2), (3, 3), (5, 3))
    for c, k in ((24, 64), (64, 64), (128, 128), (256, 256))
]
NETWORKS = {"epitomic": ("maxpool", 220, 4), "epitomic_fast": ("maxpool_fast", 32, 64)}


class Pair(nn.Module):
    """The convolution + max-pooling that a case is compared with."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        sizes = pooling(case)
        self.conv = nn.Conv2d(case.in_channels, case.out_channels, case.kernel, sizes["stride"])
        self.ceil = sizes["ceil_mode"]
        self.pool = (sizes["pool_size"], sizes["pool_stride"], sizes["pool_padding"])

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(self.conv(x), *self.pool, ceil_mode=self.ceil)


def layer_of(case: Case) -> EpitomicConv2d:
    return EpitomicConv2d(
        case.in_channels,
        case.out_channels,
        case.kernel,
        pool_size=case.pool,
        stride=case.stride,
        epitome_stride=case.epitome_stride,
    ).eval()


def entries(only: list[str]) -> Iterator[tuple[str, str, nn.Module | None, tuple[int, int, int]]]:
    """Yields name, contestant, network and (channels, size, batch). The network of the pair comes first."""
    cases = [CASES[name] for name in LAYERS] if "layers" in only else []
    for case in [*cases, *(GRID if "grid" in only else [])]:
        shape = case.in_channels, case.size, case.batch
        yield case.name, "pair", Pair(case), shape
        for form in FORMS[1:]:
            if form == "convolutions" and case not in cases:
                continue
            yield case.name, form, for_export(layer_of(case), form), shape
    if "networks" in only:
        for name, (twin, size, batch) in NETWORKS.items():
            yield name, "pair", for_export(create_model(twin)), (3, size, batch)
            for form in FORMS:
                yield name, form, for_export(create_model(name), form), (3, size, batch)


def file_of(folder: Path, name: str, contestant: str) -> Path:
    return folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}--{contestant}.onnx"


def export(model: nn.Module, channels: int, size: int, file: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=4096)
    x = torch.randn(2, channels, size, size)
    torch.onnx.export(
        model.eval(), (x,), file, dynamo=True, dynamic_shapes=({0: batch},), verbose=False, external_data=False
    )


def times(folder: Path, only: list[str], repetitions: int, threads: int) -> Iterator[dict[str, object]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    groups: dict[str, list[tuple[str, tuple[int, int, int]]]] = {}
    with torch.device("meta"):  # the files have the weights
        for name, contestant, _, shape in entries(only):
            groups.setdefault(name, []).append((contestant, shape))
    for name, contestants in groups.items():
        sessions = {
            contestant: onnxruntime.InferenceSession(
                file_of(folder, name, contestant), options, providers=["CPUExecutionProvider"]
            )
            for contestant, _ in contestants
        }
        channels, size, largest = contestants[0][1]
        for batch in (1, largest):
            x = torch.randn(batch, channels, size, size).numpy()
            loops = max(1, 4 // batch)

            def run(session: "onnxruntime.InferenceSession", x: object = x, loops: int = loops) -> None:
                for _ in range(loops):
                    session.run(None, {session.get_inputs()[0].name: x})

            calls: dict[str, Callable[[], object]] = {key: partial(run, session) for key, session in sessions.items()}
            measured = interleaved(calls, repetitions)
            for key in calls:
                ratio = measured["pair"] / measured[key]
                yield {
                    "name": name,
                    "batch": batch,
                    "form": key,
                    "ms": round(measured[key].median * 1e3 / loops, 3),
                    "speedup": round(ratio.median, 3),
                    "low": round(ratio.quartiles[0], 3),
                    "high": round(ratio.quartiles[1], 3),
                    "auto": chosen(name),
                }


def chosen(name: str) -> str:
    """Returns the form that ``"auto"`` takes for a layer."""
    case = {**CASES, **{case.name: case for case in GRID}}.get(name)
    if case is None:
        return "auto"
    with torch.device("meta"):
        return export_form(layer_of(case))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--only", nargs="+", choices=("layers", "grid", "networks"), default=["layers", "networks"])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.prepare:
        args.folder.mkdir(parents=True, exist_ok=True)
        for name, contestant, model, (channels, size, _) in entries(args.only):
            assert model is not None
            export(model, channels, size, file_of(args.folder, name, contestant))
            print(f"{name}: {contestant}", flush=True)
        return
    rows = []
    for row in times(args.folder, args.only, args.repetitions, args.threads):
        rows.append(row)
        print(*row.values(), sep="  ", flush=True)
    if args.csv:
        import onnxruntime

        facts = {"threads_of_runtime": args.threads, "onnxruntime": onnxruntime.__version__, **timing_facts()}
        write_records(args.csv, rows[0], (row.values() for row in rows), facts)


if __name__ == "__main__":
    main()
