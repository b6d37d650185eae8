"""Test errors and times of the shipped weights in int8, beside float32, in ONNX Runtime.

    python benchmarks/int8.py --folder FILES --prepare [--data-dir DIR] [--csv FILE]
    python benchmarks/int8.py --folder FILES [--repetitions 7] [--threads 2] [--csv FILE]

The first call writes the files and counts their errors on the test images, one view each. The second one times them,
so that a quiet machine is needed only for it. "int8" has 8-bit weights, "int8, 7-bit weights" is for processors without
VNNI (``reduce_range``). Ranges come from 256 training images.
"""

import argparse
import csv
import json
from functools import partial
from pathlib import Path

import torch

from epitomic.bench.timing import interleaved
from epitomic.data.small.sets import load_set
from epitomic.deployment import int8
from epitomic.deployment.export import describe
from epitomic.deployment.formats import capture, open_exported, write
from epitomic.models.pretrained import list_pretrained
from epitomic.support.machine import timing_facts
from epitomic.support.rng import generator
from epitomic.surgery import for_export
from epitomic.training.run_folder import open_run

KINDS = {"float32": None, "int8": False, "int8, 7-bit weights": True}
COUNTS = "errors.json"
BATCH = 64


def file_of(folder: Path, name: str, kind: str) -> Path:
    return folder / f"{name}--{kind.replace(', ', '-').replace(' ', '-')}.onnx"


def prepare(folder: Path, data_dir: str | None) -> None:
    counts: dict[str, dict[str, int]] = {}
    for name in list_pretrained():
        run = open_run(name, data_dir)
        images = load_set(run.dataset, data_dir)
        chosen = torch.randperm(len(images.train.images), generator=generator("calibration"))[:256]
        calibration = run.to_input(images.train.images[chosen])
        for kind, reduce_range in KINDS.items():
            file = file_of(folder, name, kind)
            exported = for_export(run.model, "auto" if reduce_range is None else "one_convolution")
            write(capture(exported, calibration[:2]), "onnx", file, describe(run.model, "onnx"))
            if reduce_range is not None:
                int8.quantise_onnx(file, calibration, reduce_range=reduce_range)
            call, wrong = open_exported("onnx", file), 0
            pairs = zip(images.test.images.split(BATCH), images.test.labels.split(BATCH), strict=True)
            for pixels, labels in pairs:
                wrong += int((call(run.to_input(pixels)).argmax(1) != labels).sum())
            counts.setdefault(name, {"images": len(images.test.images)})[kind] = wrong
            print(f"{name}, {kind}: {wrong} errors", flush=True)
    (folder / COUNTS).write_text(json.dumps(counts))


def write_errors(folder: Path, file: Path) -> None:
    """Writes the errors that `prepare` counted, without times."""
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        facts = timing_facts()
        writer.writerow(["name", "kind", "images", "errors", "error", "mb", "vnni", *facts])
        for name, counts in json.loads((folder / COUNTS).read_text()).items():
            for kind in KINDS:
                size = round(file_of(folder, name, kind).stat().st_size / 1e6, 2)
                share = counts[kind] / counts["images"]
                row = (name, kind, counts["images"], counts[kind], share, size, int8.has_vnni())
                writer.writerow([*row, *facts.values()])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--data-dir")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    if args.prepare:
        args.folder.mkdir(parents=True, exist_ok=True)
        if not (args.folder / COUNTS).is_file():
            prepare(args.folder, args.data_dir)
        if args.csv:
            write_errors(args.folder, args.csv)
        return
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    facts = {"threads_of_runtime": args.threads, "onnxruntime": onnxruntime.__version__, "vnni": int8.has_vnni()}
    facts |= timing_facts()
    rows = []
    for name, counts in json.loads((args.folder / COUNTS).read_text()).items():
        run = open_run(name)
        config = run.model.config
        x = torch.randn(BATCH, config["in_channels"], config["image_size"], config["image_size"]).numpy()  # type: ignore[index,call-overload]
        sessions = {
            kind: onnxruntime.InferenceSession(
                file_of(args.folder, name, kind), options, providers=["CPUExecutionProvider"]
            )
            for kind in KINDS
        }
        calls = {kind: partial(session.run, None, {"images": x}) for kind, session in sessions.items()}
        times = interleaved(calls, args.repetitions)
        for kind in KINDS:
            faster = times["float32"] / times[kind]
            rows.append(
                {
                    "name": name,
                    "kind": kind,
                    "images": counts["images"],
                    "errors": counts[kind],
                    "error": counts[kind] / counts["images"],
                    "batch": BATCH,
                    "ms": round(times[kind].median * 1e3, 2),
                    "speedup": round(faster.median, 3),
                    "low": round(faster.quartiles[0], 3),
                    "high": round(faster.quartiles[1], 3),
                    "mb": round(file_of(args.folder, name, kind).stat().st_size / 1e6, 2),
                }
            )
            print(*rows[-1].values(), sep="  ", flush=True)
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*rows[0], *facts])
            writer.writerows([*row.values(), *facts.values()] for row in rows)


if __name__ == "__main__":
    main()
