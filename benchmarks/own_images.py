"""Own images in ten minutes: three image sets, from trained and from random weights, and the strided twin beside.

    python benchmarks/own_images.py caltech101 imagenette work/
    python benchmarks/own_images.py caltech101 imagenette work/ --sets few --seeds 0 --minutes 10

The first two arguments are folders of unpacked images: Caltech-101's class folders, and Imagenette's `train` and `val`.
The sets are laid out in the third folder, as `train` and `test`:

    easy    airplanes, Motorbikes, Faces_easy, watch and Leopards of Caltech-101: 150 to train on, the rest to test on
    few     the first twenty classes by name with at least 60 images, but for backgrounds and faces: 40 to train on, the
            rest to test on
    photos  100 training images of each class of Imagenette, tested on all of `val`

Each run is `epitomic train SET --minutes N` and has a line in work/own_images.csv; runs that are there are kept.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from epitomic.analysis.error_rates import wilson
from epitomic.models.class_names import readable
from epitomic.models.pretrained import find_pretrained, list_pretrained
from epitomic.support.console import markdown_table, percent
from epitomic.support.files import read_json
from epitomic.support.images import SUFFIXES

EASY = ("airplanes", "Motorbikes", "Faces_easy", "watch", "Leopards")
NEITHER = {"BACKGROUND_Google", "Faces", "Faces_easy"}
WEIGHTS = "epitomic_resnet-tiny_imagenet"
SETS = ("easy", "few", "photos")
NETWORKS = {  # name -> options
    "trained": (),
    "random": ("--from", "none"),
    "strided, random": ("--from", "none", "--model", "strided_resnet"),
}
COLUMNS = ("set", "network", "seed", "errors", "images", "epochs", "steps", "crop", "seconds")


def images_of(folder: Path) -> list[Path]:
    """Returns the images of a class in an order that depends on their names alone, and looks random."""
    found = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES]
    return sorted(found, key=lambda path: hashlib.sha256(path.name.encode()).hexdigest())


def classes_of(name: str, caltech: Path, imagenette: Path) -> Iterator[tuple[str, list[Path], list[Path]]]:
    """Yields each class of a set with its images to train on and to test on."""
    if name == "photos":
        for folder in sorted((imagenette / "train").iterdir()):
            yield folder.name, images_of(folder)[:100], images_of(imagenette / "val" / folder.name)
        return
    count, chosen = 150, list(EASY)
    if name == "few":
        folders = sorted(folder.name for folder in caltech.iterdir() if folder.name not in NEITHER)
        count, chosen = 40, [folder for folder in folders if len(images_of(caltech / folder)) >= 60][:20]
    for folder_name in chosen:
        images = images_of(caltech / folder_name)
        yield folder_name, images[:count], images[count:]


def lay_out(name: str, caltech: Path, imagenette: Path, work: Path) -> Path:
    """Links the images of a set into train and test."""
    root = work / name
    for label, train, test in classes_of(name, caltech, imagenette):
        for split, images in (("train", train), ("test", test)):
            (root / split / label).mkdir(parents=True, exist_ok=True)
            for image in images:
                link = root / split / label / image.name
                if not link.is_symlink():
                    link.symlink_to(image.resolve())
    return root


def train(root: Path, network: str, seed: int, minutes: float, work: Path) -> dict[str, str]:
    """Trains by the command line, and returns the line of the table."""
    out = work / "runs" / f"{root.name}-{network.replace(', ', '-')}-{seed}"
    command = [sys.executable, "-m", "epitomic", "train", str(root), "--out", str(out)]
    began = time.monotonic()
    subprocess.run([*command, "--minutes", str(minutes), "--seed", str(seed), *NETWORKS[network]], check=True)
    seconds = time.monotonic() - began
    results, recipe = (json.loads((out / name).read_text()) for name in ("results.json", "recipe.json"))
    test = results["test"]
    values = (root.name, network, seed, test["errors"], test["images"], recipe["epochs"], recipe["steps"])
    values = (*values, recipe["photographs"]["crop"], f"{seconds:.1f}")
    return dict(zip(COLUMNS, map(str, values), strict=True))


def table(rows: list[dict[str, str]]) -> str:
    """Returns the mean error of each set and network over the seeds, with the interval of one run's test images."""
    lines = []
    for name, network in itertools.product(SETS, NETWORKS):
        runs = [row for row in rows if (row["set"], row["network"]) == (name, network)]
        if runs:
            images = int(runs[0]["images"])
            errors = sum(int(row["errors"]) for row in runs) / len(runs)
            low, high = wilson(round(errors), images)
            found = percent(errors / images), f"{percent(low)} to {percent(high)}"
            seconds = max(float(row["seconds"]) for row in runs)
            lines.append((name, network, str(len(runs)), str(images), *found, f"{seconds:.0f}"))
    return markdown_table(("set", "weights", "seeds", "test images", "error", "95 % interval", "longest run, s"), lines)


def shared_classes(root: Path) -> str:
    """Returns the classes of a set that the weights were trained on too, by id or by a word of the name."""
    if WEIGHTS not in list_pretrained():
        return f"unknown, because {WEIGHTS} is not here"
    known = read_json(find_pretrained(WEIGHTS) / "config.json")["classes"]
    words = {word for name in readable(known) for word in name.lower().split()}
    classes = sorted(path.name for path in (root / "train").iterdir())
    shared = [name for name in classes if name in known or {*name.lower().split("_")} & words]
    return ", ".join(readable(shared)) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("caltech", type=Path)
    parser.add_argument("imagenette", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--networks", nargs="+", choices=[*NETWORKS], default=[*NETWORKS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=10.0)
    args = parser.parse_args()
    path, rows = args.work / "own_images.csv", []
    if path.is_file():
        with path.open(newline="") as file:
            rows = [*csv.DictReader(file)]
    for seed, name, network in itertools.product(args.seeds, args.sets, args.networks):
        root = lay_out(name, args.caltech, args.imagenette, args.work)
        if any((row["set"], row["network"], row["seed"]) == (name, network, str(seed)) for row in rows):
            continue
        rows.append(train(root, network, seed, args.minutes, args.work))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    for name in args.sets:
        shared = shared_classes(lay_out(name, args.caltech, args.imagenette, args.work))
        print(
            f"{name}: classes that share a word or an id with the classes pretrained on: {', '.join(shared) or 'none'}"
        )
    print(table(rows))


if __name__ == "__main__":
    main()
