"""Evaluates a trained network on its test set, and writes evaluation.json beside it.

    epitomic evaluate runs/digits
    epitomic evaluate runs/imagenette --data-dir data/imagenette --crops 10

Of photographs, the folder `val` is the test set, and class probabilities are averaged over the crops.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from epitomic.data import NAMES, PHOTOGRAPHS, Batch, Standardize
from epitomic.data.memory import VIEWS
from epitomic.errors import UserError, unknown
from epitomic.files import read_json, write_json
from epitomic.options import whole


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("run", metavar="RUN", help="a run folder, or the name of weights that ship with the package")
    parser.add_argument("--data", metavar="NAME", help="another image set than the one it was trained on")
    parser.add_argument("--data-dir", metavar="DIR", help="where the image sets are; else EPITOMIC_DATA or the cache")
    parser.add_argument("--device", default="cpu", help="such as cuda")
    parser.add_argument("--views", help=f"of each small image, averaged: one of {', '.join(VIEWS)}; else as trained")
    parser.add_argument("--crops", type=int, choices=(1, 10), help="of each photograph; 10 if not given")
    parser.add_argument("--workers", type=whole(0), metavar="N", help="processes that read photographs; half the cores")


def run(args: argparse.Namespace) -> int:
    """Scores the test set; prints and writes the figures."""
    from epitomic.evaluation import score
    from epitomic.models import from_pretrained
    from epitomic.models.pretrained import SHIPPED, find_pretrained

    folder = find_pretrained(args.run)
    model = on_device(from_pretrained(folder), args.device)
    path = folder / "config.json"
    config = read_json(path)
    name = args.data or config.get("dataset")
    if name not in (*NAMES, *PHOTOGRAPHS):
        known = unknown("data set", str(name), (*NAMES, *PHOTOGRAPHS))
        raise known if args.data else UserError(f"{path} names no image set: add --data")
    for option, sets in (("views", NAMES), ("crops", PHOTOGRAPHS)):
        if getattr(args, option) is not None and name not in sets:
            raise UserError(f"--{option} is not for {name}, but for {', '.join(sets)}")
    standardize = Standardize.read(config, config.get("in_channels"), path)
    open_set = _open_photographs if name in PHOTOGRAPHS else _open_memory
    batches, classes, got, way = open_set(name, args, config, standardize, path)
    expected = (config.get("in_channels"), config.get("image_size"), config.get("num_classes"))
    if expected != got:
        raise UserError(f"{path}: the network is for (channels, size, classes) {expected}, and {name} has {got}")
    report = score(model, batches).report(classes)
    print(f"{name}, {report['images']} test images: error {100 * report['error']:.2f} % ({report['errors']} wrong)")
    print(f"top-1 {100 * report['top1']:.2f} %   top-5 {100 * report['top5']:.2f} %   loss {report['loss']:.4f}")
    print(f"{'class':<12}{'images':>8}{'recall':>10}{'precision':>11}")
    for label, row in report["classes"].items():
        recall, precision = (f"{100 * v:.2f} %" if v is not None else "-" for v in (row["recall"], row["precision"]))
        print(f"{label:<12}{row['images']:>8}{recall:>10}{precision:>11}")
    if folder.parent != SHIPPED:
        write_json(folder / "evaluation.json", {"dataset": name, **way, **report})
    return 0


def on_device(model: nn.Module, name: str) -> nn.Module:
    """A network on the device of this name; an error that names it if it cannot be used."""
    try:
        return model.to(torch.device(name))
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"cannot use --device {name} here: {str(error).splitlines()[0]}") from None


# Batches, classes, (channels, size, number of classes), and how each image is looked at.
Opened = tuple[Iterable[Batch], tuple[str, ...], tuple[int, int, int], dict[str, Any]]


def _open_memory(
    name: str, args: argparse.Namespace, config: dict[str, Any], standardize: Standardize, path: Path
) -> Opened:
    from epitomic.data import load_set
    from epitomic.data.memory import view_batches

    images = load_set(name, args.data_dir)
    shape = (images.channels, images.image_size, len(images.classes))
    views = args.views or config.get("views", "one")
    if views not in VIEWS:
        raise unknown("--views" if args.views else f"views in {path}", str(views), VIEWS)
    return view_batches(images.test, standardize, views), images.classes, shape, {"views": views}


def _open_photographs(
    name: str, args: argparse.Namespace, config: dict[str, Any], standardize: Standardize, path: Path
) -> Opened:
    from epitomic.data.crops import center_crop, ten_crops
    from epitomic.data.open import default_workers, open_validation
    from epitomic.data.views import evaluation_batches

    images = open_validation(name, args.data_dir, config, path)
    crop = int(config["image_size"])
    crops = args.crops or 10
    views = ten_crops if crops == 10 else center_crop
    workers = default_workers() if args.workers is None else args.workers
    batches = evaluation_batches(images, views, crop, standardize, workers=workers)
    return batches, images.classes, (3, crop, len(images.classes)), {"crops": crops}
