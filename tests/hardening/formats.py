"""Every file format that we read: a sound file of it, how to read it, and how to damage it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from epitomic.analysis.features import Features
from epitomic.analysis.prediction import class_names
from epitomic.analysis.robustness_table import read_rows
from epitomic.data.feed import Part
from epitomic.data.own.images import Place, open_own
from epitomic.data.photographs.color import ColorStatistics
from epitomic.data.photographs.crops import Photographs
from epitomic.data.photographs.open import open_photographs
from epitomic.data.photographs.prepare import prepare
from epitomic.data.small.cifar import read_binary
from epitomic.data.small.idx import read_idx
from epitomic.models import create_model, from_pretrained, save_pretrained
from epitomic.reproduction.transfer_table import transfer_table
from epitomic.support.files import read_sealed, write_sealed
from epitomic.support.machine import describe_facts, short_commit
from epitomic.support.options import to_dict
from epitomic.support.tensorfile import load_tensors, save_tensors
from epitomic.training import checkpoint
from epitomic.training.checkpoint import Checkpoints
from epitomic.training.optimizer import create_optimizer
from epitomic.training.recipe import Optimizer, Recipe, Schedule
from epitomic.training.recipes import get_recipe
from epitomic.training.run_folder import CHOICES, RunFolder
from epitomic.training.schedule import LearningRate
from epitomic.training.state import State
from tests.hardening import mutators
from tests.hardening.mutators import Mutator
from tests.photographs import make_folders, picture

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        name: Name of the format.
        path: The sound file.
        read: Reads it as the package does, and returns a text that changes with the result.
        change: Damages the contents.
        names: An error must contain one of these, so that its reader knows which file is damaged.
        open: Whether another valid result is fine: the format has no checksum, or the damaged file has a correct one.
    """

    name: str
    path: Path
    read: Callable[[], str]
    change: Mutator
    names: tuple[str, ...]
    open: bool = False


def digest(value: Any) -> str:
    """A text that changes with a value that may hold tensors."""
    if isinstance(value, Tensor):
        flat = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(flat).hexdigest()}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {digest(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(digest, value)) + "]"
    return repr(value)


def all_formats(folder: Path) -> list[Format]:
    """Makes a sound file of every format in ``folder``."""
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # facts of images that are kept
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    made = [
        *_run_files(folder / "run"),
        *_checkpoints(folder),
        *_store_files(folder),
        *_images(folder),
        *_small(folder),
        *_own_tables(folder),
    ]
    return [*made, *_others(folder)]


def _run_files(folder: Path) -> Iterator[Format]:
    recipe = get_recipe("digits")
    run = RunFolder(folder)
    run.begin(recipe, processes=1, first_step=0, images="x")
    run.write_choices({"forward 8 x 8": "winograd", "backward 8 x 8": "direct"})
    run.write_metrics([[epoch, 20 * epoch, 0.1, 1.0, 0.5, 1.0, 0.4, 0.1, epoch] for epoch in range(3)])
    model = create_model("epitomic_small", image_size=8, width=0.25)
    standardize = {"mean": [0.3], "std": [0.4]}
    save_pretrained(model, folder, dataset="digits", classes=list("0123456789"), standardize=standardize)
    classes = {str(number): {"images": 2, "recall": 0.5, "precision": None} for number in range(10)}
    matrix = torch.eye(10, dtype=torch.long).mul(2).tolist()
    test = {"images": 20, "error": 0.1, "errors": 2, "top1": 0.9, "top5": 1.0, "loss": 0.5, "classes": classes}
    test = {**test, "confusion": matrix, "ranks": "1" * 18 + "2-"}
    figures = {"validation_error": 0.1, "best_epoch": 2, "epochs": 3, "parameters": 9, "wall_seconds": 1.0}
    run.finish({"test": test, **figures, "cpu_seconds": 1.0, "epoch_seconds": 0.3, "bad_images": {}})

    def everything() -> str:
        found = RunFolder(folder)
        found.read_recipe()
        parts: list[Any] = [
            found.recipe,
            found.facts,
            found.config,
            found.results,
            found.metrics,
            found.classes,
            found.seed,
        ]
        parts += [found.model_name, found.dataset, found.finished, found.standardize.mean]
        parts += [describe_facts([found.facts]), short_commit(found.facts)]
        return digest(parts)

    def weights() -> str:
        return digest(dict(from_pretrained(folder).state_dict()))

    for name in ("recipe.json", "run.json", "results.json", "config.json"):
        path = folder / name
        yield Format(name, path, everything, mutators.damaged, (name,))
        yield Format(f"{name}, resealed", path, everything, mutators.hostile_json, (name,), open=True)
    yield Format("config.json of weights", folder / "config.json", weights, mutators.damaged, ("config.json",))
    other = (folder / "config.json", weights, mutators.hostile_json, ("config.json", "model.safetensors"))
    yield Format("config.json of weights, resealed", *other, open=True)
    choices = folder / CHOICES

    def chosen() -> str:
        return digest(RunFolder(folder).read_choices())

    for change, what in ((mutators.damaged, ""), (mutators.hostile_json, ", resealed")):
        yield Format(f"{choices.name}{what}", choices, chosen, change, (choices.name,), open=bool(what))
    metrics = folder / "metrics.csv"
    yield Format("metrics.csv", metrics, everything, mutators.damaged, ("metrics.csv",))
    path = folder / "model.safetensors"
    yield Format("model.safetensors", path, weights, mutators.damaged, (path.name,))
    yield Format("model.safetensors, header", path, weights, mutators.hostile_safetensors, (path.name,), open=True)
    kept = Path(shutil.copytree(folder, folder.parent / "unfinished"))
    (kept / "results.json").unlink()

    def rows() -> str:
        return digest(RunFolder(kept).metrics)

    yield Format("metrics.csv of a run", kept / metrics.name, rows, mutators.hostile_csv, (metrics.name,), open=True)


def _checkpoints(folder: Path) -> Iterator[Format]:
    recipe = Recipe()
    model = create_model("epitomic_small", image_size=8, width=0.25)
    optimizer = create_optimizer(model, Optimizer())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    rows = [[0, 9, 0.1, 1.0, 0.5, 1.0, 0.4, 0.1, 0]]
    state = State(epoch=1, batch=3, images=300, best_error=0.4, best_loss=1.0, best_epoch=0, seconds=1.0, rows=rows)
    rate = LearningRate(Schedule(), 0.1, 9, recipe.epochs)
    contents = {"recipe": to_dict(recipe), "images": "x", "state": asdict(state), "rate": rate.state()}
    checkpoints = Checkpoints(folder / "checkpoints")
    path = checkpoints.save(12, checkpoint.collect(model, optimizer, None), contents)

    def read() -> str:
        found = checkpoints.load()
        assert found is not None
        where, tensors, held = found
        run = RunFolder(folder / "none")
        from_recipe = held.get("recipe")
        run.check_same(recipe, where, checkpoint_recipe(from_recipe, where))
        run.check_images(where, held.get("images"), "x")
        again = State.read(held.get("state"), str(where), epochs=recipe.epochs, batches=9)
        rate.restore(held.get("rate"), str(where))
        checkpoint.restore(tensors, model, optimizer, None, where)
        return digest(
            [asdict(again), rate.state(), dict(model.state_dict()), checkpoint.collect(model, optimizer, None)]
        )

    def reseal(raw: bytes, random: np.random.Generator) -> bytes:
        """Changes the state or the tensors, and the checksum with them, as somebody could who knows how it is made."""
        tensors, held = load_tensors(path)
        if random.random() < 0.3:
            name = sorted(tensors)[int(random.integers(len(tensors)))]
            tensor = tensors.pop(name)
            others = (
                tensor.long(),
                tensor[..., :0],
                tensor * float("nan"),
                torch.zeros(2, 2),
                tensor.to(torch.bfloat16),
            )
            if random.random() < 0.7:
                tensors[name] = others[int(random.integers(len(others)))]
        else:
            mutators._change(held, random)
        other = folder / "resealed"
        save_tensors(other, tensors, held)
        return other.read_bytes()

    yield Format("checkpoint", path, read, mutators.damaged, (path.name,))
    yield Format("checkpoint, header", path, read, mutators.hostile_safetensors, (path.name,))
    yield Format("checkpoint, resealed", path, read, reseal, (path.name,), open=True)


def checkpoint_recipe(values: Any, where: Path) -> Recipe:
    """The recipe of a checkpoint, as the trainer reads it."""
    from epitomic.support.options import from_dict

    return from_dict(Recipe, values, str(where))


def _store_files(folder: Path) -> Iterator[Format]:
    source = make_folders(folder / "in", train=9, val=3)
    store = folder / "store"
    prepare(source, store, size=24, workers=1)

    def look() -> str:
        feed = open_photographs("photographs", store, Photographs(crop=20), batch_size=12, seed=0, workers=0)
        pairs = [*feed.stream(0, 0, Part()), *feed.validation(Part())]
        assert not feed.bad or len(feed.bad) < 30
        return "images skipped" if feed.bad else digest([tensor for pair in pairs for tensor in pair])

    def again() -> str:
        made = prepare(source, store, size=24, workers=1)
        return digest([made.images, made.bad])

    named = ("index.json", "statistics.json", "table.safetensors", "shard-00000.arrow")
    for name in ("index.json", "statistics.json", "train/table.safetensors", "val/table.safetensors"):
        yield Format(f"store: {name}", store / name, look, mutators.damaged, (Path(name).name,))
    for name in ("train/shard-00000.arrow", "val/shard-00000.arrow"):
        # An image that does not match its checksum is skipped, and named on the terminal.
        names = ("shard-00000.arrow", "images cannot be read")
        yield Format(f"store: {name}", store / name, look, mutators.damaged, names, open=True)
    yield Format(
        "store: index.json, resealed", store / "index.json", look, mutators.hostile_json, (*named, "store"), True
    )
    for name in ("plan.json", "records/train/shard-00000.json"):
        names = (Path(name).name, "was made from other images")
        yield Format(f"store: {name}", store / name, again, mutators.damaged, names)


def _images(folder: Path) -> Iterator[Format]:
    run = RunFolder(folder / "run")
    model: Any = run.model
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"):
        path = folder / f"image.{kind.lower()}"
        file = io.BytesIO()
        try:
            picture(1).save(file, kind)
        except (OSError, KeyError):  # this Pillow has no such codec
            continue
        path.write_bytes(file.getvalue())

        def read(path: Path = path) -> str:
            return digest(model.preprocess(path))

        yield Format(f"image: {kind}", path, read, mutators.damaged, (path.name,), open=True)


def _small(folder: Path) -> Iterator[Format]:
    import gzip
    import struct

    images = struct.pack(">4I", 0x803, 12, 28, 28) + np.arange(12 * 28 * 28).astype(np.uint8).tobytes()
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(images))

    def idx() -> str:
        return digest(read_idx(path, 3))

    yield Format("IDX, packed", path, idx, mutators.damaged, (path.name,), open=True)
    yield Format("IDX, unpacked", path, idx, mutators.inside_gzip(mutators.damaged), (path.name,), open=True)
    yield Format(
        "IDX, header and bombs", path, idx, mutators.inside_gzip(mutators.hostile_idx), (path.name,), open=True
    )
    batch = folder / "data_batch_1.bin"
    batch.write_bytes(np.arange(5 * 3073).astype(np.uint8).tobytes())
    yield Format("CIFAR-10", batch, lambda: digest(read_binary(batch)), mutators.damaged, (batch.name,), open=True)


def _own_tables(folder: Path) -> Iterator[Format]:
    """A CSV file that names images, and the facts that are kept about them."""
    root = folder / "own"
    root.mkdir()
    lines = ["image,label"]
    for number in range(12):
        picture(number, number % 2).save(root / f"{number}.png")
        lines.append(f"{number}.png,{'ab'[number % 2]}")
    table = root / "labels.csv"
    table.write_text("\n".join(lines) + "\n")

    def look() -> str:
        images = open_own(Place(str(table)))
        return digest([images.classes, images.labels, images.parts])

    names = (table.name, "images", "class ")
    for change, what in ((mutators.damaged, ""), (mutators.hostile_csv, ", cells")):
        yield Format(f"own images: CSV{what}", table, look, change, names, open=True)


def _others(folder: Path) -> Iterator[Format]:
    colors = folder / "statistics.json"
    ColorStatistics((0.5, 0.4, 0.3), ((0.1, 0.01, 0.0), (0.01, 0.1, 0.0), (0.0, 0.0, 0.1)), 9, "x").save(colors)

    def statistics() -> str:
        found = ColorStatistics.load(colors, "x")
        return digest([asdict(found), found.noise(), found.standardize().std])

    for change, what in ((mutators.damaged, ""), (mutators.hostile_json, ", entries")):
        yield Format(f"statistics.json of folders{what}", colors, statistics, change, (colors.name,), open=True)
    table = folder / "kept" / "epitomic-0.json"
    kept = json.loads((ROOT / "results" / "caltech101" / "epitomic-0.json").read_text())
    write_sealed(table, kept)

    def transfer() -> str:
        read_sealed(table)
        return transfer_table(table.parent)

    yield Format("transfer.json", table, transfer, mutators.damaged, (table.name,))
    yield Format("transfer.json, resealed", table, transfer, mutators.hostile_json, (table.name,), open=True)
    rows = folder / "robustness.csv"
    shutil.copy(ROOT / "results" / "robustness-mnist.csv", rows)
    for change, what in ((mutators.damaged, ""), (mutators.hostile_csv, ", cells")):
        yield Format(f"robustness.csv{what}", rows, lambda: repr(read_rows(rows)), change, (rows.name,), open=True)
    names = folder / "names.json"
    names.write_text(json.dumps({"0": "zero", "1": "one"}))
    for change, what in ((mutators.damaged, ""), (mutators.hostile_json, ", entries")):
        name = f"names of classes{what}"
        yield Format(name, names, lambda: repr(class_names(("0", "1"), names)), change, (names.name,), open=True)
    features = folder / "features.safetensors"
    Features(torch.randn(4, 3), torch.arange(4), ("a", "b", "c", "d")).save(features)

    def vectors() -> str:
        found = Features.load(features)
        return digest([found.vectors, found.labels, found.classes])

    yield Format("features", features, vectors, mutators.damaged, (features.name,))
