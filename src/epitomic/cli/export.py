"""Writes a trained network to one file that runs without this package, and checks it on real images.

    epitomic export runs/digits --to onnx --out digits.onnx
    epitomic export epitomic_fast-cifar10 --to torch --out model.pt2 --images holiday/
    epitomic export runs/digits --to onnx --out small.onnx --int8 --calibration some_images/

onnx runs in ONNX Runtime and others, torch is loaded by torch.export.load. aoti is a package with machine code for this
processor: load only packages of your own. The file's metadata holds the class names and how images become input. The
file and the network are run on the test images of the run, or on --images. If they differ, no file is written.
"""

from __future__ import annotations

import argparse
from typing import Any

from epitomic.cli.shared_options import RUN_HELP, add_data_dir
from epitomic.support.console import Progress, percent
from epitomic.support.errors import UserError

CALIBRATION = 256  # images


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--to", required=True, metavar="FORMAT", help="format of the file: onnx, torch or aoti")
    parser.add_argument("--out", required=True, metavar="FILE", help="file to write: .onnx, or .pt2 for torch and aoti")
    parser.add_argument(
        "--images", nargs="+", metavar="IMAGE", help="images or folders to check the file on (default: the test images)"
    )
    parser.add_argument("--int8", action="store_true", help="compute in 8-bit integers; onnx and torch only")
    parser.add_argument(
        "--calibration",
        nargs="+",
        metavar="IMAGE",
        help=f"images or folders that give --int8 its ranges (default: {CALIBRATION} training images of a small set)",
    )
    add_data_dir(parser)


def run(args: argparse.Namespace) -> int:
    """Writes the file and prints how it compares with the network."""
    from epitomic.deployment import export_network
    from epitomic.deployment.formats import check_format
    from epitomic.training.run_folder import open_run

    check_format(args.to)
    if args.calibration and not args.int8:
        raise UserError("--calibration is for --int8: add it, or leave both out")
    network = open_run(args.run, args.data_dir)
    images = _images(network, args.images, "--images", "test")
    calibration = _images(network, args.calibration, "--calibration", "training") if args.int8 else None
    with Progress(1) as progress:
        result = export_network(network.model, args.to, args.out, images, calibration=calibration, tell=progress.update)
    if args.int8:
        print(f"{percent(result.same, 1)} of {result.images} images are in the same class as before")
    else:
        print(f"{result.images} images give equal scores, to {result.difference:.1e} of the largest score")
    print(f"wrote {result.file} ({result.file.stat().st_size / 1e6:.1f} MB)")
    return 0


def _images(network: Any, files: list[str] | None, option: str, kind: str) -> Any:
    """Returns images as the network's input: those of an option, or of the set that it was trained on."""
    from epitomic.analysis.prediction import find_files
    from epitomic.data.small.sets import NAMES, load_set
    from epitomic.deployment.export import as_input
    from epitomic.support.rng import generator

    if files:
        found = find_files([file for file in files if file != "-"], None)
        return as_input(network.model, [str(file) for file in found])
    try:
        if kind == "test":
            return network.to_input(network.test.images[:CALIBRATION])
        if network.dataset not in NAMES:
            raise UserError(f"the {kind} images of {network.dataset} are photographs")
        pixels = load_set(network.dataset, network.data_dir).train.images
    except UserError as error:
        raise UserError(f"{error}; or name images of your own by {option}") from None
    import torch

    return network.to_input(pixels[torch.randperm(len(pixels), generator=generator("calibration"))[:CALIBRATION]])
