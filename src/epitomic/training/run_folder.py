"""The run folder: everything that a training leaves behind. Only this module knows its file names.

    recipe.json           every setting of the training
    run.json              command, commit, versions, machine, seed and wall time, and the same of each resumed session
    choices.json          the algorithm of each layer, which a resumed run takes again
    metrics.csv           one line for each epoch
    config.json           the network, its classes and how its images are standardised
    model.safetensors     the network's weights: the best epoch's or the last epoch's, as the recipe says
    results.json          figures on the test images; written last, so a run with this file is finished
    checkpoints/          the last two checkpoints, for --resume
    tensorboard/          the metrics for TensorBoard
    lock                  says who trains here; it is removed when the training ends
    report.html           a page on the run
    learning-curve/       run folders of trainings on a share of the images (`epitomic report --learning-curve`)
    evaluation.json       what `epitomic evaluate` found
    transfer.json         what `epitomic transfer` found
    features/             feature vectors that `epitomic transfer` and `epitomic features` computed

A folder of weights alone has only config.json and model.safetensors (see `models.pretrained`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from epitomic.data.small.splits import Split
from epitomic.data.standardisation import Standardize
from epitomic.data.test_images import PhotographTest, SmallTest, open_test_images
from epitomic.models import from_pretrained
from epitomic.models.class_names import readable
from epitomic.models.pretrained import CONFIG, WEIGHTS, find_pretrained
from epitomic.models.whitening import LocalWhitening
from epitomic.support.errors import UserError
from epitomic.support.files import TEMPORARY, check_seal, read_json, read_sealed, sha256, write_sealed, write_text
from epitomic.support.lock import LOCK, FolderLock, locked
from epitomic.support.machine import gather_facts, timestamp
from epitomic.support.options import differences, from_dict, to_dict
from epitomic.training.checkpoint import Checkpoints
from epitomic.training.recipe import Recipe
from epitomic.training.run_schema import COLUMNS, check_config, check_facts, check_results, parse_metrics

RECIPE, FACTS, METRICS, RESULTS = "recipe.json", "run.json", "metrics.csv", "results.json"
CHOICES = "choices.json"
CHECKPOINTS, TENSORBOARD, REPORT = "checkpoints", "tensorboard", "report.html"
EVALUATION, TRANSFER, FEATURES = "evaluation.json", "transfer.json", "features"
LEARNING_CURVE = "learning-curve"

KEPT = (RECIPE, FACTS, METRICS, RESULTS)  # the small files of a finished run, worth keeping in a repository
METRICS_SHA256 = "metrics_sha256"  # entry of results.json with the checksum of metrics.csv
# Facts that are noted anew for each resumed session.
SESSION = ("command", "commit", "versions", "machine", "processes", "first_step", "started")


Check = Callable[[dict[str, Any], Path], dict[str, Any]]


class RunFolder:
    """The folder of one training: reads and writes its files.

    Files are read when they are first needed and then remembered. What an unfinished run does not have yet is None or
    empty.

    Args:
        folder: Path of the run folder. It need not exist.
        data_dir: Folder of the image sets. None: see `data.data_root`.
    """

    def __init__(self, folder: str | Path, data_dir: str | None = None) -> None:
        self.folder = Path(folder)
        self.data_dir = data_dir
        self.checkpoints = Checkpoints(self.folder / CHECKPOINTS)
        self._lock: FolderLock | None = None

    # Reading

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """Every setting of the training, as JSON; empty if the folder holds weights alone."""
        values = self._read(RECIPE) or {}
        if values:
            from_dict(Recipe, values, str(self.folder / RECIPE))  # raises an error if it is no recipe
        return values

    def read_recipe(self) -> Recipe:
        """The recipe that the run was begun with."""
        return from_dict(Recipe, read_sealed(self.folder / RECIPE), str(self.folder / RECIPE))

    @cached_property
    def config(self) -> dict[str, Any] | None:
        """The network, its classes and its standardisation; None before the end of the first epoch."""
        return self._read(CONFIG, check_config) if (self.folder / WEIGHTS).is_file() else None

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Command, commit, versions and machine."""
        return self._read(FACTS, check_facts) or {}

    @cached_property
    def results(self) -> dict[str, Any] | None:
        """Figures on the test images; None if the run is not finished."""
        return self._read(RESULTS, check_results)

    @cached_property
    def metrics(self) -> list[dict[str, float]]:
        """The figures of each epoch."""
        path = self.folder / METRICS
        if not path.is_file():
            return []
        try:
            contents = path.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from None
        digest = (self.results or {}).get(METRICS_SHA256)
        if digest not in (None, sha256(contents)):
            raise UserError(f"{path} is damaged: its contents do not match their SHA-256 in {self.folder / RESULTS}")
        return parse_metrics(contents, path)

    def read_choices(self) -> dict[str, str]:
        """The algorithms that the run has taken so far, by the shape of the call (`ops.selection`)."""
        path = self.folder / CHOICES
        if not path.is_file():
            return {}
        try:
            choices = check_seal(path, read_json(path))
        except UserError as error:
            raise UserError(f"{error}; remove it to choose the algorithms anew") from None
        if not all(isinstance(algorithm, str) for algorithm in choices.values()):
            raise UserError(f"{path} does not hold algorithms: remove it to choose them anew")
        return choices

    def _read(self, name: str, check: Check = lambda values, _: values) -> dict[str, Any] | None:
        path = self.folder / name
        return check(read_sealed(path), path) if path.is_file() else None

    def exists(self) -> bool:
        """Whether a training has begun here."""
        return (self.folder / RECIPE).exists()

    @property
    def finished(self) -> bool:
        """Whether the training has ended and its results are written."""
        return self.results is not None

    def share(self, share: float) -> RunFolder:
        """The folder of the same training on a share of the images; it need not exist."""
        return RunFolder(self.folder / LEARNING_CURVE / f"{share:g}", self.data_dir)

    @property
    def name(self) -> str:
        """Name of the folder without the path to it."""
        return self.folder.resolve().name

    @property
    def model_name(self) -> str:
        """Name of the network."""
        return str((self.config or {}).get("model") or self._setting("model") or "network")

    @property
    def dataset(self) -> str:
        """Name of the image set."""
        return str((self.config or {}).get("dataset") or self._setting("data") or "unknown images")

    def _setting(self, group: str) -> Any:
        values = self.recipe.get(group)
        return values.get("name") if isinstance(values, dict) else None

    @property
    def seed(self) -> int:
        """Seed of everything random in the run."""
        return int(self.recipe.get("seed", 0))

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of the labels; a class without a name has its number."""
        config = self.config or {}
        names = [str(name) for name in config.get("classes") or ()]
        return (*names, *map(str, range(len(names), int(config.get("num_classes", 0)))))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Class names for people: English instead of WordNet ids; from the results if there are no weights."""
        return readable(self.classes or (self.results or {}).get("test", {}).get("classes", ()))

    # The network and its test images

    @cached_property
    def model(self) -> nn.Module:
        """The network with the weights kept so far, ready for evaluation."""
        self._check_weights()
        return from_pretrained(self.folder)

    @cached_property
    def standardize(self) -> Standardize:
        """The standardisation that the network was trained with."""
        config = self.config or {}
        return Standardize.read(config, config.get("in_channels"), self.folder / CONFIG)

    def open_test_images(self, **options: Any) -> SmallTest | PhotographTest:
        """Opens the test images; ``options`` are those of `data.test_images.open_test_images`."""
        self._check_weights()
        place = self.read_recipe().data.place if (self.config or {}).get("own") and self.exists() else None
        return open_test_images(self.config or {}, self.folder / CONFIG, self.data_dir, place=place, **options)

    @cached_property
    def test(self) -> Split:
        """Test images to look at: all of a small set, or the centre crops of up to 1,000 photographs.

        Raises:
            UserError: If the images are not here; the message says how to get them.
        """
        return self.open_test_images().sample()

    @property
    def test_count(self) -> int:
        """Number of images in the whole test set."""
        test = (self.results or {}).get("test")
        return int(test["images"]) if test else len(self.test)

    def _check_weights(self) -> None:
        if self.config is None and self.results is not None:
            raise UserError(
                f"{self.folder} is finished, but its weights are not kept there: `epitomic reproduce` leaves them in "
                "the folder that its --runs names"
            )
        if self.config is None:
            raise UserError(
                f"{self.folder} has no weights yet, they come with the end of the first epoch: "
                f"continue with `epitomic train --resume --out {self.folder}`"
            )

    def to_input(self, images: Tensor) -> Tensor:
        """Turns (N, C, H, W) bytes into what the network takes, as in evaluation."""
        return self.standardize(images.float().div_(255))

    def to_pixels(self, x: Tensor) -> Tensor:
        """Turns the input of the first layer that learns back into pixels: (N, C, H, W), 0 to 1, not clamped."""
        whitening = getattr(self.model, "whitening", None)
        if isinstance(whitening, LocalWhitening):
            x = whitening.undo(x)
        mean, std = (x.new_tensor(v).reshape(1, -1, 1, 1) for v in (self.standardize.mean, self.standardize.std))
        return x * std + mean

    # Writing

    @contextmanager
    def writing(self) -> Iterator[FolderLock]:
        """Keeps other trainings out of the folder inside the block; see `support.lock`."""
        try:
            with locked(self.folder) as self._lock:
                self._remove_leftovers()
                yield self._lock
        finally:
            self._lock = None

    def check_there(self) -> None:
        """Raises an error if the folder was removed or replaced since `writing` began."""
        if self._lock is not None:
            self._lock.check()

    def check_new(self) -> None:
        """Raises an error unless the folder is free for a new run."""
        written = not self.folder.is_dir() or any(
            path.suffix != TEMPORARY and path.name != LOCK for path in self.folder.iterdir()
        )
        if self.folder.exists() and written:
            hint = "name another folder"
            if self.exists() and not self.finished and not self.checkpoints.files():
                hint = "the run in it has no checkpoint yet: if it is not running, remove the folder, or name another"
            elif self.exists():
                hint = "add --resume to continue the run in it, or name another folder"
            raise UserError(f"--out {self.folder} is {'not empty' if self.folder.is_dir() else 'a file'}: {hint}")

    def check_same(self, recipe: Recipe, source: Path, stored: Recipe) -> None:
        """Raises an error that names each setting in which ``recipe`` differs from ``stored``, which ``source`` holds.

        Other views of the test images are no error, because the training is the same.
        """
        changed = list(differences(replace(stored, data=replace(stored.data, views=recipe.data.views)), recipe))
        if changed:
            listed = ", ".join(f"--{path} {new} where it has {old}" for path, old, new in changed)
            raise UserError(f"cannot resume: the recipe does not fit {source}: {listed}")

    def check_images(self, source: Path, stored: str | None, fingerprint: str) -> None:
        """Raises an error if ``source`` was made with other images than the ones whose fingerprint is given."""
        if stored != fingerprint:
            raise UserError(f"cannot resume: {source} was made with other images than --data-dir has now")

    def write_recipe(self, recipe: Recipe) -> None:
        """Writes the recipe that the weights and the results belong to."""
        write_sealed(self.folder / RECIPE, to_dict(recipe))
        self.recipe = to_dict(recipe)

    def begin(self, recipe: Recipe, **session: Any) -> None:
        """Writes the recipe and the facts of a session at its start. Facts of earlier sessions stay."""
        self._remove_leftovers()
        self.write_recipe(recipe)
        facts = {**gather_facts(), "seed": recipe.seed, **session}
        if self.facts:
            again = {name: facts[name] for name in SESSION}
            facts = {**self.facts, "sessions": [*self.facts.get("sessions", ()), again]}
        self._write_facts(facts)

    def _remove_leftovers(self) -> None:
        """Removes files that were being written when a training was killed."""
        for leftover in self.folder.glob(f"*{TEMPORARY}"):
            leftover.unlink(missing_ok=True)

    def write_choices(self, choices: Mapping[str, str]) -> None:
        """Writes the algorithms that the run has taken, if there are new ones."""
        if choices != self.read_choices():
            self.check_there()
            write_sealed(self.folder / CHOICES, dict(choices))

    def write_metrics(self, rows: list[list[Any]]) -> None:
        """Writes the figures of all epochs so far."""
        self.check_there()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
        write_text(self.folder / METRICS, text.getvalue())
        self.__dict__.pop("metrics", None)  # read again when needed

    def finish(self, results: dict[str, Any]) -> None:
        """Writes the wall time to the facts, then the results, which mark the run as finished."""
        self._write_facts({**self.facts, "wall_seconds": results["wall_seconds"], "finished": timestamp()})
        metrics = self.folder / METRICS
        if metrics.is_file():
            results = {**results, METRICS_SHA256: sha256(metrics.read_bytes())}
        write_sealed(self.folder / RESULTS, results)
        self.results = results

    def _write_facts(self, facts: dict[str, Any]) -> None:
        self.check_there()
        write_sealed(self.folder / FACTS, facts)
        self.facts = facts


def open_run(folder: str | Path, data_dir: str | None = None) -> RunFolder:
    """Opens a run folder, a folder of weights alone, or weights that ship with the package.

    Raises:
        UserError: If it is none of these; the message says what is missing.
    """
    run = RunFolder(find_pretrained(folder), data_dir)
    if not run.exists() and run.config is None:
        raise UserError(f"{run.folder} is no run folder: it has neither {RECIPE} nor {CONFIG} with {WEIGHTS}")
    return run


def open_runs(folders: Sequence[str | Path], data_dir: str | None = None) -> list[RunFolder]:
    """Opens several run folders; see `open_run`."""
    return [open_run(folder, data_dir) for folder in folders]
