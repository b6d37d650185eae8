"""Writes one vector an image: the output of a trained network's last fully-connected layer.

    epitomic features runs/imagenet caltech101 --out caltech101.npz

DATA is a folder of class folders, or a store that `epitomic prepare` made. The file has the arrays `vectors` (N, D),
`labels` (N,), and the names of the `classes`; its suffix says how: .npz or .safetensors.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epitomic.cli.output import output_folder
from epitomic.errors import UserError, unknown
from epitomic.files import read_json, write_atomically
from epitomic.options import whole

if TYPE_CHECKING:
    from epitomic.transfer import Features

SUFFIXES = (".npz", ".safetensors")
KINDS_HELP = "network: as trained; untrained: the same network as initialised; pixels: the images themselves"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("run", metavar="RUN", help="a run folder, or the name of weights that ship with the package")
    configure_features(parser)
    parser.add_argument("--features", default="network", metavar="KIND", help=KINDS_HELP)
    parser.add_argument("--out", metavar="FILE", required=True, help="a new file, .npz or .safetensors")


def configure_features(parser: argparse.ArgumentParser) -> None:
    """The options that say which vectors, without the run and the kind."""
    parser.add_argument("data", metavar="DATA", help="class folders, or a prepared store")
    parser.add_argument("--split", metavar="NAME", help="of DATA, such as val; else its train, or DATA itself")
    parser.add_argument("--seed", type=int, default=0, help="of the untrained network, and of random splits")
    parser.add_argument("--device", default="cpu", help="such as cuda")
    parser.add_argument("--workers", type=whole(0), metavar="N", help="processes that read images; half the cores")
    parser.add_argument("--cache", metavar="DIR", help="where computed vectors are kept; RUN/features if not given")


def run(args: argparse.Namespace) -> int:
    """Computes, or takes from the cache, and writes."""
    path = Path(args.out)
    if path.suffix not in SUFFIXES:
        raise UserError(f"--out must end in {' or '.join(SUFFIXES)}, got {args.out!r}")
    if path.exists():
        raise UserError(f"--out {path} is there already: remove it, or name another file")
    check_kinds([args.features])
    features = compute_features(args.run, args.features, args)
    write_features(features, path)
    count, size = features.vectors.shape
    print(f"{count:,} vectors of {size:,} numbers are in {path}")
    return 0


def write_features(features: Features, path: Path) -> None:
    """To .npz or .safetensors."""
    if path.suffix == ".safetensors":
        features.save(path)
        return
    import numpy as np

    arrays = {"vectors": features.vectors.numpy(), "labels": features.labels.numpy()}

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, classes=np.array(features.classes), **arrays)  # type: ignore[arg-type]

    write_atomically(path, write)


def check_kinds(kinds: list[str]) -> None:
    """An error that names the first one that there is not."""
    from epitomic.transfer import KINDS

    for kind in kinds:
        if kind not in KINDS:
            raise unknown("--features", kind, KINDS)


def compute_features(run: str, kind: str, args: argparse.Namespace) -> Features:
    """The vectors that the other options ask for; those computed before are taken from the cache."""
    from epitomic.cli.evaluate import on_device
    from epitomic.data.batches import Standardize
    from epitomic.data.open import default_workers, open_split
    from epitomic.data.pixels import need_images
    from epitomic.models import from_pretrained
    from epitomic.models.pretrained import find_pretrained
    from epitomic.transfer import cache_key, cached, extract, weights_digest

    need_images()
    folder = find_pretrained(run)
    path = folder / "config.json"
    model: Any = from_pretrained(folder)
    config = read_json(path)
    if config.get("in_channels") != 3:
        raise UserError(f"{path}: the network is for images of {config.get('in_channels')} channels, not of 3")
    standardize, size = Standardize.read(config, 3, path), int(config["image_size"])
    source = open_split(Path(args.data), args.split, 0)
    if kind == "untrained":
        model = as_initialised(model, args.seed)
    elif kind == "pixels":
        model = None
    weights = "pixels" if model is None else weights_digest(model)
    model = None if model is None else on_device(model, args.device)
    key = cache_key(weights, source.fingerprint, size, standardize)
    cache = Path(args.cache) if args.cache else output_folder(run) / "features"
    workers = default_workers() if args.workers is None else args.workers
    return cached(cache / f"{key}.safetensors", lambda: extract(model, source, size, standardize, workers=workers))


def as_initialised(model: Any, seed: int) -> Any:
    """A trained network before its training; what it took from the images without learning, a whitening, stays."""
    import torch

    from epitomic.models import create_model

    torch.manual_seed(seed)
    untrained = create_model(model.config["model"], **{k: v for k, v in model.config.items() if k != "model"}).eval()
    fixed = {name: parameter for name, parameter in model.named_parameters() if not parameter.requires_grad}
    untrained.load_state_dict(fixed, strict=False)
    return untrained
