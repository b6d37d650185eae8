"""Test errors and times of the shipped weights in int8, beside float32, in ONNX Runtime.

    python benchmarks/int8.py --folder FILES --prepare [--only NAME ...] [--data-dir DIR] [--csv FILE]
    python benchmarks/int8.py --folder FILES [--repetitions 7] [--threads 2] [--csv FILE]

The first call writes the files and counts their errors on the test images, one view each; its CSV is int8_errors.csv.
The second one times them, so that a quiet machine is needed only for it; its CSV is int8_times.csv. "int8" has 8-bit
weights, "int8, 7-bit weights" is for processors without VNNI (``reduce_range``). Ranges come from 256 training images.

The kinds of one network take turns, and the speedup is the time of float32, in the form that is exported without
--int8, over the time of int8, within a repetition (median and quartiles).
"""

import argparse
import csv
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from epitomic.bench.timing import interleaved
from epitomic.data.small.sets import NAMES, load_set
from epitomic.deployment import int8
from epitomic.deployment.export import describe
from epitomic.deployment.formats import capture, open_exported, write
from epitomic.models.pretrained import CONFIG, find_pretrained, list_pretrained
from epitomic.support.files import read_sealed
from epitomic.support.machine import timing_facts
from epitomic.support.rng import generator
from epitomic.surgery import for_export
from epitomic.training.run_folder import open_run

KINDS = {"float32": None, "int8": False, "int8, 7-bit weights": True}
COUNTS = "errors.json"
BATCH = 64  # images that are tested at once
BATCHES = (1, 64)  # images that are timed at once
ONE_IMAGE = 16  # calls in a row that are timed of one image


def file_of(folder: Path, name: str, kind: str) -> Path:
    return folder / f"{name}--{kind.replace(', ', '-').replace(' ', '-')}.onnx"


def shipped() -> list[str]:
    """Names of the shipped weights of small image sets, whose test images are at hand."""
    return [name for name in list_pretrained() if open_run(name).dataset in NAMES]


def prepare(folder: Path, names: list[str], data_dir: str | None) -> None:
    counts: dict[str, dict[str, int]] = {}
    for name in names:
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


def times(folder: Path, repetitions: int, threads: int) -> Iterator[dict[str, object]]:
    """Times the kinds of each network in turn; yields a row for each kind and batch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    for name in json.loads((folder / COUNTS).read_text()):
        sessions = {
            kind: onnxruntime.InferenceSession(file_of(folder, name, kind), options, providers=["CPUExecutionProvider"])
            for kind in KINDS
        }
        config = read_sealed(find_pretrained(name) / CONFIG)
        for batch in BATCHES:
            x = torch.randn(batch, config["in_channels"], config["image_size"], config["image_size"]).numpy()
            loops = ONE_IMAGE if batch == 1 else 1

            def run(session: "onnxruntime.InferenceSession", x: object = x, loops: int = loops) -> None:
                for _ in range(loops):
                    session.run(None, {"images": x})

            measured = interleaved({kind: partial(run, session) for kind, session in sessions.items()}, repetitions)
            for kind, sample in measured.items():
                faster = measured["float32"] / sample
                yield {
                    "name": name,
                    "kind": kind,
                    "batch": batch,
                    "ms": round(sample.median * 1e3 / loops, 3),
                    "speedup": round(faster.median, 3),
                    "low": round(faster.quartiles[0], 3),
                    "high": round(faster.quartiles[1], 3),
                    "repetitions": repetitions,
                }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument(
        "--only", nargs="+", choices=shipped(), metavar="NAME", help="weights to prepare (default: all)"
    )
    parser.add_argument("--data-dir")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    if args.prepare:
        args.folder.mkdir(parents=True, exist_ok=True)
        if not (args.folder / COUNTS).is_file():
            prepare(args.folder, args.only or shipped(), args.data_dir)
        if args.csv:
            write_errors(args.folder, args.csv)
        return
    import onnxruntime

    facts = {"threads_of_runtime": args.threads, "onnxruntime": onnxruntime.__version__, "vnni": int8.has_vnni()}
    facts |= timing_facts()
    rows = []
    for row in times(args.folder, args.repetitions, args.threads):
        rows.append(row)
        print(*row.values(), sep="  ", flush=True)
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*rows[0], *facts])
            writer.writerows([*row.values(), *facts.values()] for row in rows)


if __name__ == "__main__":
    main()
