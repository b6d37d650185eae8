"""Own images in ten minutes: three image sets, from trained and from random weights, and the strided twin beside.

    python benchmarks/own_images.py caltech101 imagenette work/ --list
    python benchmarks/own_images.py caltech101 imagenette work/
    python benchmarks/own_images.py caltech101 imagenette work/ --sets few --seeds 0 --networks epitomic

The first two arguments are folders of unpacked images: Caltech-101's class folders, and Imagenette's `train` and `val`.
The sets are laid out in the third folder, as `train` and `test`:

    easy    airplanes, Motorbikes, Faces_easy, watch and Leopards of Caltech-101: 150 to train on, the rest to test on
    few     the first twenty classes by name with at least 60 images, but for backgrounds and faces: 40 to train on, the
            rest to test on
    photos  100 training images of each class of Imagenette, tested on all of `val`

Each run is `epitomic train SET --minutes 10 --seed N`, in a process of its own. A finished run leaves two small files
in results/own-images/SET/NETWORK-SEED and is not made again; one that was stopped begins anew. `--strided RUN` adds the
strided twin from weights of its own. `python tools/fill_tables.py` writes the table of docs/results.md from them.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from epitomic.support.files import write_atomically, write_json
from epitomic.support.images import SUFFIXES

RESULTS = Path(__file__).parents[1] / "results" / "own-images"
EASY = ("airplanes", "Motorbikes", "Faces_easy", "watch", "Leopards")
NEITHER = {"BACKGROUND_Google", "Faces", "Faces_easy"}
COUNTS = {"easy": 150, "few": 40, "photos": 100}  # images of each class to train on
CLASSES, LEAST = 20, 60  # of "few": number of classes, and the fewest images of one
NETWORKS = {
    "epitomic": (),
    "epitomic-random": ("--from", "none"),
    "strided-random": ("--from", "none", "--model", "strided_resnet"),
}
FACTS = ("commit", "versions", "machine", "started", "finished", "seed")
FIGURES = ("test", "center", "validation_error", "epochs", "wall_seconds", "cpu_seconds", "parameters")


def images_of(folder: Path) -> list[Path]:
    """Returns the images of a class in an order that depends on their names alone, and looks random."""
    found = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES]
    return sorted(found, key=lambda path: hashlib.sha256(path.name.encode()).hexdigest())


def classes_of(name: str, caltech: Path, imagenette: Path) -> Iterator[tuple[str, list[Path], list[Path]]]:
    """Yields each class of a set with its images to train on and to test on."""
    count = COUNTS[name]
    if name == "photos":
        for folder in sorted((imagenette / "train").iterdir()):
            yield folder.name, images_of(folder)[:count], images_of(imagenette / "val" / folder.name)
        return
    chosen = list(EASY)
    if name == "few":
        folders = sorted(folder.name for folder in caltech.iterdir() if folder.name not in NEITHER)
        chosen = [folder for folder in folders if len(images_of(caltech / folder)) >= LEAST][:CLASSES]
    for folder_name in chosen:
        images = images_of(caltech / folder_name)
        yield folder_name, images[:count], images[count:]


def lay_out(name: str, caltech: Path, imagenette: Path, work: Path) -> Path:
    """Links the images of a set into train and test, and says how many there are."""
    root, counts = work / name, {"train": 0, "test": 0}
    shutil.rmtree(root, ignore_errors=True)  # links to other images would stay
    for label, *parts in classes_of(name, caltech, imagenette):
        for split, images in zip(counts, parts, strict=True):
            (root / split / label).mkdir(parents=True)
            counts[split] += len(images)
            for image in images:
                (root / split / label / image.name).symlink_to(image.resolve())
    print(f"{name}: {len([*(root / 'train').iterdir()])} classes, {counts['train']} images to train on, ", end="")
    print(f"{counts['test']} to test on", flush=True)
    return root


def train(root: Path, options: tuple[str, ...], out: Path) -> float:
    """Trains by the command line, and returns the seconds from the command's start to its exit."""
    shutil.rmtree(out, ignore_errors=True)  # of a run that was stopped: its time cannot be continued
    command = [sys.executable, "-m", "epitomic", "train", root.name, "--out", str(out.resolve()), *options]
    began = time.monotonic()
    subprocess.run(command, check=True, cwd=root.parent)
    return time.monotonic() - began


def keep(out: Path, kept: Path, command: str, seconds: float) -> None:
    """Writes the small files of a run, without paths of this machine."""
    results, recipe, facts = (json.loads((out / f"{name}.json").read_text()) for name in ("results", "recipe", "run"))
    if results["bad_images"]:
        raise SystemExit(f"{len(results['bad_images'])} images cannot be read: {next(iter(results['bad_images']))}")
    recipe["data"]["source"] = recipe["data"]["source"].rpartition("/")[2]
    weights = recipe["start"]["weights"]
    recipe["start"]["weights"] = weights and weights.rpartition("/")[2]
    values: dict[str, Any] = {"command": command, "seconds": round(seconds, 1)}
    values |= {name: facts[name] for name in FACTS}
    values |= {name: results[name] for name in FIGURES if name in results}
    for way in ("test", "center"):
        values.get(way, {}).pop("confusion", None)  # 400 lines that no table needs
    kept.mkdir(parents=True, exist_ok=True)
    write_atomically(kept / "metrics.csv", lambda path: shutil.copyfile(out / "metrics.csv", path))
    write_json(kept / "run.json", {**values, "recipe": recipe})  # last: a run counts when this file is there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("caltech", type=Path)
    parser.add_argument("imagenette", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--sets", nargs="+", choices=COUNTS, default=[*COUNTS])
    parser.add_argument("--networks", nargs="+", help=f"of {', '.join(NETWORKS)} and strided (default: all)")
    parser.add_argument("--strided", type=Path, metavar="RUN", help="weights of the strided twin, on the same images")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder that finished runs are kept in")
    parser.add_argument("--list", action="store_true", help="say which runs are missing, and train none")
    args = parser.parse_args()
    networks = dict(NETWORKS)
    if args.strided is not None:
        networks["strided"] = ("--from", str(args.strided.resolve()))
    unknown = {*(args.networks or ())} - {*networks}
    if unknown:
        parser.error(f"no network {', '.join(sorted(unknown))}: choose from {', '.join(networks)}")
    runs = itertools.product(args.seeds, args.sets, args.networks or networks)
    missing = [run for run in runs if not (folder_of(args.results, *run) / "run.json").is_file()]
    print(f"{len(missing)} runs of {args.minutes:g} minutes are missing: {len(missing) * args.minutes / 60:.1f} hours")
    for seed, name, network in missing if args.list else ():
        print(f"  {name} {network}-{seed}")
    if args.list:
        return
    roots = {name: lay_out(name, args.caltech, args.imagenette, args.work) for name in args.sets}
    for seed, name, network in missing:
        print(f"{name} {network}-{seed}", flush=True)
        out = args.work / "runs" / name / f"{network}-{seed}"
        options = ("--minutes", f"{args.minutes:g}", "--seed", str(seed), *networks[network])
        seconds = train(roots[name], options, out)
        shown = " ".join(os.path.basename(word) if word.startswith("/") else word for word in options)
        keep(out, folder_of(args.results, seed, name, network), f"epitomic train {name} {shown}", seconds)


def folder_of(results: Path, seed: int, name: str, network: str) -> Path:
    """Returns the folder that a run is kept in."""
    return results / name / f"{network}-{seed}"


if __name__ == "__main__":
    main()
