"""Compares the input of photographs with other loaders, on the same images, by the time of one worker's core.

    python benchmarks/image_loaders.py make SOURCE FOLDER            # the images, once for every loader
    python benchmarks/image_loaders.py compare FOLDER --out loaders.csv
    python benchmarks/image_loaders.py jpeg FOLDER --out jpeg.csv    # what --quality and --subsampling of prepare do
    python benchmarks/image_loaders.py digest FOLDER                 # SHA-256 of an epoch's batches

SOURCE has train/CLASS/IMAGE. `make` joins four images into one of 256 x 256 pixels. Every loader gets the same
JPEG bytes, cuts crops of 220 pixels at random places, mirrors half of them, and uses one worker. The others decode by
Pillow, as is common, and by simplejpeg, as we do. Each timing is a process of its own; the loaders take turns. The
worker's core time includes its start. Loaders that are not installed are left out.

--older PYTHON adds an older version of this package: the interpreter of an environment that has it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from epitomic.data.photographs.store import StoreImages

CROP, SIZE, BATCH = 220, 256, 128
OURS, OURS_420, OLDER = "epitomic", "epitomic, 4:2:0", "epitomic, older version"
PACKAGES = {"webdataset": "webdataset", "litdata": "litdata", "mosaicml-streaming": "streaming"}
MEAN, STD = torch.full((3, 1, 1), 0.45), torch.full((3, 1, 1), 0.25)
STORED = [(quality, subsampling) for quality in (95, 90, 85) for subsampling in ("4:4:4", "4:2:0")]
Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


# --- the images ---


def make(source: Path, folder: Path, count: int, older: str | None) -> None:
    """Makes a store in two subsamplings, and the same bytes for the other loaders."""
    from epitomic.data.photographs.prepare import prepare
    from epitomic.data.photographs.store import StoreImages

    for split, number in (("train", count), ("val", BATCH)):
        make_photographs(source / "train", folder / "photographs" / split, number)
    prepare(folder / "photographs", folder / "store", size=SIZE)
    prepare(folder / "photographs", folder / "store-420", size=SIZE, quality=90, subsampling="4:2:0")
    for split in ("train", "val"):
        write_files(folder / "files" / split, StoreImages(folder / "store", split))
    if older:  # it copies files that have the right size already
        command = [older, "-m", "epitomic", "prepare", str(folder / "files"), str(folder / "store-older")]
        subprocess.run(command, check=True)
    images = StoreImages(folder / "store", "train")
    pairs = [(images.contents(i), int(images.labels[i])) for i in torch.randperm(len(images)).tolist()]
    writers = {"webdataset": write_webdataset, "litdata": write_litdata, "mosaicml-streaming": write_mosaic}
    for name, writer in writers.items():
        if importlib.util.find_spec(PACKAGES[name]):
            writer(folder / name, pairs)


def make_photographs(source: Path, target: Path, count: int) -> None:
    """Joins four images of a class into one, without loss; `prepare` then stores it as JPEG."""
    classes = sorted(path for path in source.iterdir() if path.is_dir())
    files = {path: sorted(path.iterdir()) for path in classes}
    for number in range(count):
        path = classes[number % len(classes)]
        whole = Image.new("RGB", (SIZE, SIZE))
        for corner in range(4):
            place = (4 * (number // len(classes)) + corner) % len(files[path])
            image = Image.open(files[path][place]).convert("RGB").resize((SIZE // 2, SIZE // 2))
            whole.paste(image, (corner % 2 * SIZE // 2, corner // 2 * SIZE // 2))
        (target / path.name).mkdir(parents=True, exist_ok=True)
        whole.save(target / path.name / f"{number:06d}.tiff", compression="tiff_deflate")


def write_files(target: Path, images: StoreImages) -> None:
    """Writes the images of a store as files, in its order."""
    for number in range(len(images)):
        path = target / f"{int(images.labels[number]):04d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(images.contents(number))


def write_webdataset(target: Path, pairs: list[tuple[bytes, int]]) -> None:
    import webdataset

    target.mkdir()
    with webdataset.ShardWriter(str(target / "%05d.tar"), maxcount=256, verbose=0) as writer:
        for number, (contents, label) in enumerate(pairs):
            writer.write({"__key__": f"{number:06d}", "jpg": contents, "cls": str(label).encode()})


def write_litdata(target: Path, pairs: list[tuple[bytes, int]]) -> None:
    import litdata

    litdata.optimize(pairs.__getitem__, list(range(len(pairs))), str(target), chunk_bytes="16MB", num_workers=1)


def write_mosaic(target: Path, pairs: list[tuple[bytes, int]]) -> None:
    import streaming

    with streaming.MDSWriter(out=str(target), columns={"jpg": "bytes", "label": "int"}, size_limit=1 << 24) as writer:
        for contents, label in pairs:
            writer.write({"jpg": contents, "label": label})


# --- the loaders ---


def crop_by_pillow(contents: bytes) -> torch.Tensor:
    image = Image.open(io.BytesIO(contents)).convert("RGB")
    left, top = (int(torch.randint(side - CROP + 1, ())) for side in image.size)
    image = image.crop((left, top, left + CROP, top + CROP))
    if torch.rand(()) < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image))


def crop_by_simplejpeg(contents: bytes) -> torch.Tensor:
    import simplejpeg

    pixels = simplejpeg.decode_jpeg(contents)
    top, left = (int(torch.randint(side - CROP + 1, ())) for side in pixels.shape[:2])
    pixels = pixels[top : top + CROP, left : left + CROP]
    return torch.from_numpy((pixels[:, ::-1] if torch.rand(()) < 0.5 else pixels).copy())


Crop = Callable[[bytes], torch.Tensor]


def open_ours(store: Path, workers: int = 1) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields the standardised batches of an epoch; knows where this version and version 0.1 keep their parts."""
    from epitomic.data.feed import Part

    try:
        from epitomic.data.photographs.crops import Photographs
        from epitomic.data.photographs.open import open_photographs
    except ModuleNotFoundError:
        from epitomic.data.crops import Photographs  # type: ignore[import-not-found,no-redef]
        from epitomic.data.open import open_photographs  # type: ignore[import-not-found,no-redef]
    config = Photographs(crop=CROP)
    feed = open_photographs("photographs", store, config, batch_size=BATCH, seed=0, workers=workers)
    return feed.stream(0, 0, Part())


class Files(Dataset[Any]):
    """Plain files, as `torchvision.datasets.ImageFolder` reads them."""

    def __init__(self, folder: Path, crop: Crop) -> None:
        self.paths, self.crop = sorted(folder.rglob("*.jpg")), crop

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.crop(self.paths[index].read_bytes()), int(self.paths[index].parent.name)


def open_files(folder: Path, crop: Crop) -> Batches:
    return DataLoader(Files(folder / "files" / "train", crop), BATCH, shuffle=True, num_workers=1)


def open_webdataset(folder: Path, crop: Crop) -> Batches:
    import webdataset

    urls = sorted(map(str, (folder / "webdataset").glob("*.tar")))
    samples = webdataset.WebDataset(urls, shardshuffle=len(urls)).shuffle(1000)
    return DataLoader(samples.map(lambda s: (crop(s["jpg"]), int(s["cls"]))), BATCH, num_workers=1)


def open_litdata(folder: Path, crop: Crop) -> Batches:
    import litdata

    class Crops(litdata.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
            contents, label = super().__getitem__(index)
            return crop(contents), label

    return litdata.StreamingDataLoader(  # type: ignore[no-any-return]
        Crops(str(folder / "litdata"), shuffle=True), batch_size=BATCH, num_workers=1
    )


def open_mosaic(folder: Path, crop: Crop) -> Batches:
    import streaming

    class Crops(streaming.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
            sample = super().__getitem__(index)
            return crop(sample["jpg"]), sample["label"]

    streaming.base.util.clean_stale_shared_memory()
    return DataLoader(
        Crops(local=str(folder / "mosaicml-streaming"), shuffle=True, batch_size=BATCH), BATCH, num_workers=1
    )


OTHERS = {
    "plain files": open_files,
    "webdataset": open_webdataset,
    "litdata": open_litdata,
    "mosaicml-streaming": open_mosaic,
}
CROPS = {"Pillow": crop_by_pillow, "simplejpeg": crop_by_simplejpeg}


def open_loader(name: str, folder: Path) -> Batches:
    """Returns the standardised batches of a loader."""
    ours = {OURS: "store", OURS_420: "store-420", OLDER: "store-older"}
    if name in ours:
        return open_ours(folder / ours[name])
    loader, crop = name.split(", ")
    batches = OTHERS[loader](folder, CROPS[crop])
    return ((images.permute(0, 3, 1, 2).float().div_(255).sub_(MEAN).div_(STD), labels) for images, labels in batches)


# --- the timings ---


def time_one(name: str, folder: Path) -> None:
    """Prints the core seconds of one epoch: of the worker, and of all processes."""
    torch.set_num_threads(1)
    batches = open_loader(name, folder)
    core, began, images = time.process_time(), time.perf_counter(), 0
    for pixels, labels in batches:
        assert pixels.shape[1:] == (3, CROP, CROP)
        images += len(labels)
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    worker = used.ru_utime + used.ru_stime
    total = worker + time.process_time() - core
    print(json.dumps({"images": images, "seconds": seconds, "worker": worker, "total": total}))


def compare(folder: Path, older: str | None, repetitions: int, out: Path | None) -> None:
    """Times all loaders in turns, and shows medians and the medians of the ratios of each turn."""
    from epitomic.support.console import text_table

    names = [OLDER] * bool(older) + [OURS, OURS_420]
    for loader in OTHERS:
        if loader not in PACKAGES or importlib.util.find_spec(PACKAGES[loader]):
            names += [f"{loader}, {crop}" for crop in CROPS]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(repetitions):
        for name in names:
            python = older if older and name == OLDER else sys.executable
            command = [python, __file__, "one", str(folder), "--loader", name]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            found[name].append(json.loads(result.stdout.splitlines()[-1]))
    columns = ("loader", "n", "images", "rate", "worker_us", "total_us", "relative", "relative_q1", "relative_q3")
    rows = []
    first = [one["worker"] / one["images"] for one in found[names[0]]]
    for name, ones in found.items():
        worker = [one["worker"] / one["images"] for one in ones]
        total = [one["total"] / one["images"] for one in ones]
        ratios = [a / b for a, b in zip(first, worker, strict=True)]
        rate = statistics.median(one["images"] / one["seconds"] for one in ones)
        microseconds = [f"{1e6 * statistics.median(times):.0f}" for times in (worker, total)]
        quartiles = [f"{value:.3f}" for value in np.percentile(ratios, (50, 25, 75))]
        rows.append([name, str(len(ones)), str(int(ones[0]["images"])), f"{rate:.0f}", *microseconds, *quartiles])
    print(text_table(columns, rows, right=range(1, len(columns))))
    save(out, columns, rows)


def jpeg(folder: Path, count: int, repetitions: int, out: Path | None) -> None:
    """Shows size, loss and time of decoding for some settings of `epitomic prepare`."""
    import simplejpeg

    from epitomic.support.console import text_table
    from epitomic.support.images import encode

    paths = sorted((folder / "photographs" / "train").rglob("*.tiff"))
    chosen = [paths[i] for i in torch.randperm(len(paths), generator=torch.Generator().manual_seed(0))[:count].tolist()]
    originals = [Image.open(path).convert("RGB") for path in chosen]
    stored = {setting: [encode(image, *setting) for image in originals] for setting in STORED}
    times: dict[tuple[int, str], list[float]] = {setting: [] for setting in STORED}
    for turn in range(repetitions + 1):
        for setting, files in stored.items():
            began = time.process_time()
            for file in files:
                simplejpeg.decode_jpeg(file)
            if turn:  # the first one is for the caches
                times[setting].append((time.process_time() - began) / len(files))
    columns = ("quality", "subsampling", "images", "n", "kb", "psnr_db", "decode_us", "relative")
    rows = []
    for (quality, subsampling), files in stored.items():
        decoded = [simplejpeg.decode_jpeg(file) for file in files]
        errors = [((a.astype(float) - np.asarray(b)) ** 2).mean() for a, b in zip(decoded, originals, strict=True)]
        loss = statistics.fmean(10 * np.log10(255**2 / error) for error in errors)
        taken = times[quality, subsampling]
        ratio = statistics.median(a / b for a, b in zip(times[STORED[0]], taken, strict=True))
        size = statistics.fmean(map(len, files)) / 1000
        numbers = [f"{size:.1f}", f"{loss:.1f}", f"{1e6 * statistics.median(taken):.0f}", f"{ratio:.3f}"]
        rows.append([str(quality), subsampling, str(len(files)), str(repetitions), *numbers])
    print(text_table(columns, rows, right=range(len(columns))))
    save(out, columns, rows)


def save(out: Path | None, columns: Iterable[str], rows: list[list[str]]) -> None:
    """Writes a CSV file with the facts about the machine and the versions of the other loaders."""
    from importlib import metadata

    from epitomic.bench.records import write_records
    from epitomic.support.machine import timing_facts

    versions = {name: metadata.version(name) for name in PACKAGES if importlib.util.find_spec(PACKAGES[name])}
    facts = {**timing_facts(), "others": ", ".join(f"{name} {version}" for name, version in versions.items())}
    write_records(out, columns, rows, facts)


def digest(store: Path) -> None:
    """Prints the SHA-256 of the numbers and labels of all batches of an epoch."""
    found = hashlib.sha256()
    for pixels, labels in open_ours(store, workers=0):
        found.update(pixels.contiguous().numpy().tobytes() + labels.numpy().tobytes())
    print(found.hexdigest())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "compare", "jpeg", "digest", "one"), help="what to do")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="make: SOURCE FOLDER; digest: a store")
    parser.add_argument("--images", type=int, default=1024, help="make, jpeg: number of images (default: 1024)")
    parser.add_argument("--older", metavar="PYTHON", help="interpreter with an older version (default: none)")
    parser.add_argument("--repetitions", type=int, default=5, help="timings of each loader (default: 5)")
    parser.add_argument("--out", type=Path, help="CSV file for the results (default: write none)")
    parser.add_argument("--loader", help="one: name of the loader to time")
    args = parser.parse_args()
    if args.what == "make":
        source, folder = args.folders
        make(source, folder, args.images, args.older)
    elif args.what == "compare":
        compare(args.folders[0], args.older, args.repetitions, args.out)
    elif args.what == "jpeg":
        jpeg(args.folders[0], args.images, args.repetitions, args.out)
    elif args.what == "digest":
        digest(args.folders[0])
    else:
        time_one(args.loader, args.folders[0])


if __name__ == "__main__":
    main()
