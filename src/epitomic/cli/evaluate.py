"""Evaluates a trained network on its test set, and writes evaluation.json beside it.

epitomic evaluate runs/digits
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from epitomic.data import NAMES, Standardize
from epitomic.errors import UserError, unknown
from epitomic.files import read_json, write_json


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("run", metavar="RUN", help="a run folder: config.json and model.safetensors")
    parser.add_argument("--data", metavar="NAME", help="another image set than the one it was trained on")
    parser.add_argument("--data-dir", metavar="DIR", help="where the image sets are; else EPITOMIC_DATA or the cache")


def run(args: argparse.Namespace) -> int:
    """Scores the test set; prints and writes the figures."""
    from epitomic.data import load_set
    from epitomic.evaluation import score
    from epitomic.models import from_pretrained

    model = from_pretrained(args.run)
    path = Path(args.run) / "config.json"
    config = read_json(path)
    name = args.data or config.get("dataset")
    if name not in NAMES:
        raise (
            unknown("data set", str(name), NAMES) if args.data else UserError(f"{path} names no image set: add --data")
        )
    images = load_set(name, args.data_dir)
    standardize = read_standardize(path, config, images.channels)
    expected = (config.get("in_channels"), config.get("image_size"), config.get("num_classes"))
    got = (images.channels, images.image_size, len(images.classes))
    if expected != got:
        raise UserError(f"{path}: the network is for (channels, size, classes) {expected}, and {name} has {got}")
    report = score(model, images.test, standardize).report(images.classes)
    write_json(Path(args.run) / "evaluation.json", {"dataset": name, **report})

    print(f"{name}, {report['images']} test images: error {100 * report['error']:.2f} % ({report['errors']} wrong)")
    print(f"top-1 {100 * report['top1']:.2f} %   top-5 {100 * report['top5']:.2f} %   loss {report['loss']:.4f}")
    print(f"{'class':<12}{'images':>8}{'recall':>10}{'precision':>11}")
    for label, row in report["classes"].items():
        recall, precision = (f"{100 * v:.2f} %" if v is not None else "-" for v in (row["recall"], row["precision"]))
        print(f"{label:<12}{row['images']:>8}{recall:>10}{precision:>11}")
    return 0


def read_standardize(path: Path, config: dict[str, Any], channels: int) -> Standardize:
    """The standardisation that the network was trained with."""
    values = config.get("standardize")
    found = []
    for key in ("mean", "std"):
        entry = values.get(key) if isinstance(values, dict) else None
        if not isinstance(entry, list) or len(entry) != channels or not all(isinstance(v, int | float) for v in entry):
            raise UserError(f"{path} has no 'standardize' with a {key} of {channels} channels")
        found.append(tuple(map(float, entry)))
    return Standardize(mean=found[0], std=found[1])
