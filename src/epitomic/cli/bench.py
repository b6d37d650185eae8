"""Times the layer, and our fused pair, against conv2d + max_pool2d with the same filters, channels and output size.

    epitomic bench                                      the layers of the tables, with the fastest algorithm
    epitomic bench --algorithms native winograd         the native kernel, and torch calls only
    epitomic bench --networks epitomic_small            a training step of whole networks
    epitomic bench --device cuda                        the layers on a GPU
    epitomic bench --input data/imagenet                the input: images/s of a store, and the cores that it takes

All contestants run in one process. Each repetition times every contestant once, and ratios are taken within the
repetition. Both sides run in contiguous and in channels_last memory, and the faster time of each side counts. Torch's
two calls also run under torch.compile. On a device with bfloat16 instructions everything also runs in bfloat16;
speed-ups are always over torch's float32. The row max_pool_conv2d is conv2d + max_pool2d computed by our kernel.
NAME@torch is the network NAME with torch's own layers. On CUDA and ROCm, events of the device take the times.

--input times one process that opens a store, reads, decodes and crops its images. It then times the whole feed with 1,
2, 4, ... worker processes, up to one per core. Both run with the files in memory (warm) and after the system has
forgotten them (cold). At last it times a training step of a network, on the GPU if there is one, and says how many
cores feed it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path

import torch

from epitomic.bench.cases import CASES
from epitomic.bench.contest import growth_cases, run_contest
from epitomic.bench.networks import NETWORK_PAIRS, run_networks
from epitomic.bench.table import (
    input_table,
    layer_table,
    need_table,
    network_table,
    save_input,
    save_layers,
    save_networks,
)
from epitomic.models import list_models
from epitomic.ops.choice import ALGORITHMS
from epitomic.ops.library import why_not_native
from epitomic.ops.triton.served import TRITON, why_no_triton
from epitomic.support.console import Progress
from epitomic.support.devices import allow_tf32, device_name, open_device
from epitomic.support.errors import UserError, unknown
from epitomic.support.machine import timing_facts
from epitomic.support.options import whole


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "--cases", nargs="+", metavar="NAME", help=f"layers to time: {'; '.join(CASES)} (default: all of them)"
    )
    parser.add_argument(
        "--algorithms",
        nargs="+",
        default=["auto"],
        metavar="A",
        help=f"our algorithms to time: {', '.join(ALGORITHMS)}",
    )
    parser.add_argument("--normalize", action="store_true", help="time the normalised layers (Eq. 3) as well")
    parser.add_argument(
        "--repetitions",
        type=whole(1),
        metavar="N",
        help="timings of each contestant (default: 7, or 3 with --input)",
    )
    parser.add_argument(
        "--threads", type=whole(1), default=torch.get_num_threads(), metavar="N", help="threads of torch"
    )
    parser.add_argument(
        "--device", metavar="NAME", help="device to time, such as cuda:1 or mps (default: cpu, or auto with --input)"
    )
    parser.add_argument(
        "--tf32", action="store_true", help="let both sides multiply float32 in TF32 on CUDA (default: neither)"
    )
    parser.add_argument("--no-compile", action="store_true", help="do not run torch's two calls under torch.compile")
    parser.add_argument("--no-bfloat16", action="store_true", help="run everything in float32 only")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument("--growth", action="store_true", help="time one layer over batch and image sizes as well")
    parser.add_argument(
        "--networks",
        nargs="*",
        metavar="NETWORK",
        help="time whole networks against their max-pooled versions; without names, all of them (default: time "
        "layers). With --input: networks to feed (default: epitomic)",
    )
    parser.add_argument(
        "--input",
        type=Path,
        metavar="STORE",
        help="time the input from a store that `epitomic prepare` made (default: time layers)",
    )
    parser.add_argument(
        "--crop",
        type=whole(1),
        metavar="PIXELS",
        help="with --input: height and width of crops (default: 220, or less)",
    )
    parser.add_argument(
        "--seconds", type=whole(1), default=3, metavar="S", help="with --input: about how long one timing lasts"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for bench.csv and bench.png (needs matplotlib), networks.csv or input.csv (default: write none)",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the benchmark, prints its table and writes its files."""
    args.repetitions = args.repetitions or (3 if args.input else 7)
    device = open_device(args.device or ("auto" if args.input else "cpu"))
    allow_tf32(device, "tf32" if args.tf32 else "32-true")
    if args.input:
        return _run_input(args, device)
    cases = args.cases or list(CASES)
    _check_names("case", cases, CASES)
    _check_names("algorithm", args.algorithms, ALGORITHMS)
    _check_names("network", args.networks or (), {pair.ours for pair in NETWORK_PAIRS})
    for algorithm in args.algorithms:
        reason = why_not_native(torch.float32, device) if algorithm == "native" else None
        reason = why_no_triton(device) if algorithm in TRITON else reason
        if reason:
            raise UserError(f"--algorithms {algorithm}: {reason}")
    torch.set_num_threads(args.threads)
    return _run_layers(args, cases, device) if args.networks is None else _run_networks(args, device)


def _facts(device: torch.device) -> dict[str, str]:
    """Returns the facts beside each timing; a GPU has its name there, too."""
    return timing_facts() | ({} if device.type == "cpu" else {"device": device_name(device)})


def _check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)


def _run_layers(args: argparse.Namespace, names: list[str], device: torch.device) -> int:
    facts, results, grown = _facts(device), [], []
    growth = growth_cases() if args.growth else []
    with Progress(args.repetitions * (len(names) + len(growth))) as progress:
        for name in names:
            results += run_contest(
                CASES[name],
                args.algorithms,
                repetitions=args.repetitions,
                progress=progress,
                normalize=args.normalize,
                memory=not args.no_memory,
                compiled=not args.no_compile,
                bfloat16=not args.no_bfloat16,
                device=device,
            )
        for case in growth:
            grown += run_contest(
                case,
                args.algorithms[:1],
                repetitions=args.repetitions,
                progress=progress,
                compiled=not args.no_compile,
                bfloat16=not args.no_bfloat16,
                device=device,
            )
    print(layer_table(results))
    if grown:
        print("\ngrowth over batch and image size\n" + layer_table(grown))
    if args.out:
        save_layers(results + grown, args.out / "bench.csv", facts)
        print(f"wrote {args.out / 'bench.csv'}")
        if importlib.util.find_spec("matplotlib"):
            from epitomic.bench.picture import save_picture

            save_picture(results + grown, args.out / "bench.png")
            print(f"wrote {args.out / 'bench.png'}")
    return 0


def _run_networks(args: argparse.Namespace, device: torch.device) -> int:
    facts = _facts(device)
    pairs = [pair for pair in NETWORK_PAIRS if not args.networks or pair.ours in args.networks]
    with Progress(args.repetitions * len(pairs)) as progress:
        results = run_networks(pairs, repetitions=args.repetitions, progress=progress, device=device)
    print(network_table(results))
    if args.out:
        save_networks(results, args.out / "networks.csv", facts)
        print(f"wrote {args.out / 'networks.csv'}")
    return 0


def _run_input(args: argparse.Namespace, device: torch.device) -> int:
    from epitomic.bench import image_input
    from epitomic.data.photographs.store import read_index
    from epitomic.support.images import need_images

    names = args.networks or ["epitomic"]
    _check_names("network", names, list_models())
    need_images()
    crop = args.crop or min(220, read_index(args.input).size)
    torch.set_num_threads(args.threads)
    facts, workers = _facts(device), image_input.worker_counts(os.cpu_count() or 1)
    with Progress(image_input.timings(workers, args.repetitions) + len(names)) as progress:
        results = image_input.run_input(
            args.input,
            crop=crop,
            workers=workers,
            seconds=args.seconds,
            repetitions=args.repetitions,
            progress=progress,
        )
        needs = []
        for name in names:
            progress.update(f"a training step of {name}")
            needs.append(image_input.measure_need(name, crop, 32, results, args.seconds, device))
            progress.update("", progress.done + 1)
    print(input_table(results))
    if not image_input.can_evict():
        print("This system cannot be told to forget files, so there are no cold timings.")
    print("\n" + need_table(needs, image_input.feed_core_seconds(results)))
    if args.out:
        save_input(results, args.out / "input.csv", facts)
        print(f"wrote {args.out / 'input.csv'}")
    return 0
