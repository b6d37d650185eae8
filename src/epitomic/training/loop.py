"""The training loop.

Everything random is a function of (seed, epoch, batch) or (seed, epoch, sample): the order of the samples and their
augmentation, which a `Feed` of `data` knows, and the dropout masks (`models.dropout`). So a checkpoint holds no
generator, and a run that was stopped at any moment goes on to the same bits.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor, nn

from epitomic.data import Batch, Feed, Part
from epitomic.data.feed import BAD_SHARE, SKIP, too_many
from epitomic.errors import UserError
from epitomic.evaluation import OTHER_WAYS, score
from epitomic.files import read_json
from epitomic.models import FitsImages, create_model, from_pretrained, save_pretrained
from epitomic.models.counting import learned
from epitomic.models.dropout import key_dropout
from epitomic.models.pretrained import describe_pretrained
from epitomic.options import from_dict, to_dict
from epitomic.training import checkpoint
from epitomic.training.averaging import WeightAverage
from epitomic.training.log import TensorBoard
from epitomic.training.optimizer import create_optimizer
from epitomic.training.progress import Progress
from epitomic.training.recipe import Recipe
from epitomic.training.run import Run
from epitomic.training.schedule import LearningRate
from epitomic.training.setup import Settings, check_batches, check_model, create_fabric, open_feed
from epitomic.training.signals import StopSignals
from epitomic.training.state import Clock, State, Sums


class Stopped(Exception):  # noqa: N818
    """A signal asked the training to stop, and it has, with a checkpoint."""

    def __init__(self, number: int, path: str) -> None:
        super().__init__(path)
        self.number = number


class Trainer:
    """One training, from its start or its last checkpoint.

    Args:
        recipe: What to train.
        run: Where to keep it.
        settings: How to run it.
    """

    def __init__(self, recipe: Recipe, run: Run, settings: Settings) -> None:
        self.recipe, self.run, self.settings = recipe, run, settings
        check_model(recipe)
        self.feed = open_feed(recipe, settings)
        check_batches(recipe, settings, self.feed.images)

        self.fabric = create_fabric(recipe, settings)
        self.fabric.launch()
        self.main = self.fabric.global_rank == 0
        self.part = Part(self.fabric.global_rank, self.fabric.world_size, recipe.accumulate, self.fabric.device)

        torch.manual_seed(recipe.seed)  # the initial weights; nothing after them draws from this generator
        model = create_model(
            recipe.model.name,
            num_classes=len(self.feed.classes),
            in_channels=self.feed.channels,
            image_size=self.feed.image_size,
            **recipe.model.arguments(),
        )
        if isinstance(model, FitsImages) and not self.run.checkpoints.files():
            images, _ = next(self.feed.stream(0, 0, Part()))  # the run's first global batch, the same in every process
            model.fit(images)
        self.dtype = torch.float64 if recipe.precision == "64-true" else torch.float32
        self.model = model.to(self.fabric.device, self.dtype)
        self.average = WeightAverage(self.model, recipe.ema) if recipe.ema else None
        self.optimizer = create_optimizer(self.model, recipe.optimizer)
        self.rate = LearningRate(recipe.schedule, recipe.optimizer.lr, len(self.feed), recipe.epochs)
        self.state = State()
        restored = self._restore()
        self.wrapped, self.wrapped_optimizer = self.fabric.setup(self.model, self.optimizer)
        self.fabric.barrier()  # every process has read the checkpoint before the first renames or writes another
        if self.main and restored is not None:
            self.run.checkpoints.set_aside_after(restored)

    @property
    def step(self) -> int:
        """Steps done."""
        return self.state.epoch * len(self.feed) + self.state.batch

    @property
    def evaluated(self) -> nn.Module:
        """The network that is validated and kept: the average, or the model itself."""
        return self.average.model if self.average else self.model

    def train(self) -> None:
        """Goes on to the end of the recipe.

        Raises:
            Stopped: After Ctrl-C or SIGTERM, when the step is done and saved.
            UserError: If the loss or a weight is no longer finite, or a file cannot be written.
        """
        recipe, state = self.recipe, self.state
        if self.main:
            self.run.begin(recipe, _facts(self.fabric, self.feed, self.step))
        log = TensorBoard(self.run.folder / "tensorboard", self.step, enabled=self.main)
        steps, quiet = recipe.epochs * len(self.feed), self.settings.quiet or not self.main
        self.wrapped.train()
        clock = Clock(state.seconds, state.cpu_seconds)
        saved = time.monotonic()
        with (
            StopSignals() as stop,
            Progress(steps, self.step, recipe.batch_size, recipe.epochs, quiet=quiet) as progress,
        ):
            while state.epoch < recipe.epochs and not self.rate.finished:
                stream = self.feed.stream(state.epoch, state.batch, self.part)
                while state.batch < len(self.feed):
                    lr = self.rate.at(self.step)
                    sums = self._train_step(stream, lr)
                    due = time.monotonic() - saved > self.settings.save_every
                    sums, due, stopped = self._sum_over_processes(sums, due, stop.received)
                    if not math.isfinite(sums.loss):
                        raise self._not_finite("loss", self.step + 1)
                    state.bad += self.feed.count(state.batch) - sums.images
                    if state.bad > BAD_SHARE * self.feed.images:
                        raise too_many(state.bad, self.feed.images, self.feed.bad)
                    state.batch += 1
                    state.images += sums.images
                    state.loss += sums.loss
                    state.errors += sums.errors
                    state.seconds, state.cpu_seconds = clock.read()
                    progress.advance(state.epoch, self.step, state.loss / max(1, state.images))
                    log.step(self.step, lr=lr, loss=sums.loss / max(1, sums.images))
                    if stopped:
                        raise Stopped(stop.received or signal.SIGTERM, self._save())
                    if due:
                        self._save()
                        saved = time.monotonic()
                figures = self._end_epoch()
                state.seconds, state.cpu_seconds = clock.read()
                log.epoch(self.step, **figures, seconds=state.seconds)
                best = state.best_epoch == state.epoch - 1
                progress.end_epoch(state.epoch - 1, figures["train_loss"], figures["val_error"], best)
                self._save()
                saved = time.monotonic()
        log.close()

    def _train_step(self, stream: Iterator[Batch], lr: float) -> Sums:
        """One step on this process's part of the global batch."""
        recipe, state, step = self.recipe, self.state, self.step
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["rate"]
        # The gradient is the mean over the images of the global batch, in whatever parts they come.
        share = self.feed.count(state.batch) / self.fabric.world_size  # whose gradients are then averaged
        loss_sum, errors, count = 0.0, 0, 0
        for piece, places in enumerate(self.part.slices(recipe.batch_size)):
            images, labels = next(stream)
            images = images.to(self.fabric.device, self.dtype, memory_format=torch.channels_last)
            labels = labels.to(self.fabric.device)
            key_dropout(self.model, recipe.seed, step, places.start)
            with self.fabric.no_backward_sync(self.wrapped, enabled=piece + 1 < recipe.accumulate):
                scores = self.wrapped(images)
                loss = F.cross_entropy(
                    scores, labels, ignore_index=SKIP, label_smoothing=recipe.label_smoothing, reduction="sum"
                )
                self.fabric.backward(loss / share)
            loss_sum += loss.item()
            errors += int(((scores.detach().argmax(1) != labels) & (labels != SKIP)).sum())
            count += int((labels != SKIP).sum())
        if recipe.optimizer.max_norm is not None:
            self.fabric.clip_gradients(self.wrapped, self.wrapped_optimizer, max_norm=recipe.optimizer.max_norm)
        self.wrapped_optimizer.step()
        self.wrapped_optimizer.zero_grad()
        self._share_statistics()
        if self.average:
            self.average.update(step)
        return Sums(loss_sum, errors, count)

    def _share_statistics(self) -> None:
        """Gives every process the first one's running statistics, each having seen its own part of the batch.

        After every step, whatever the clock has saved: so all processes have the network, and the average of it, that a
        checkpoint or an epoch's weights hold.
        """
        if self.fabric.world_size > 1:
            for buffer in self.model.buffers():
                torch.distributed.broadcast(buffer, src=0)

    def _sum_over_processes(self, sums: Sums, due: bool, stop: int) -> tuple[Sums, bool, bool]:
        """Sums of the step, and what any process wants, so that all do the same."""
        if self.fabric.world_size > 1:
            values = torch.tensor([*sums, due and self.main, stop != 0], dtype=torch.float64)
            loss, errors, images, due, stop = self._sum(values).tolist()
            sums = Sums(loss, int(errors), int(images))
        return sums, bool(due), bool(stop)

    def _end_epoch(self) -> dict[str, float]:
        """Validates, keeps the weights if they are the best so far, notes the figures, turns to the next epoch."""
        state = self.state
        val_loss, val_error, val_top5_error = self._validate()
        if not math.isfinite(val_loss):
            raise self._not_finite("validation loss", self.step)
        better = state.best_error is None or (val_error, val_loss) < (state.best_error, state.best_loss)
        if better or self.recipe.keep == "last":
            state.best_error, state.best_loss, state.best_epoch = val_error, val_loss, state.epoch
            if self.main:
                save_pretrained(self.evaluated, self.run.folder, **self.feed.describe())
        figures = {
            "lr": self.rate.at(self.step - 1),
            "train_loss": state.loss / max(1, state.images),
            "train_error": state.errors / max(1, state.images),
            "val_loss": val_loss,
            "val_error": val_error,
            "val_top5_error": val_top5_error,
        }
        state.rows.append([state.epoch, self.step, *figures.values(), state.best_epoch])
        if self.main:
            self.run.write_metrics(state.rows)
        self.rate.end_epoch(val_error)
        state.epoch, state.batch, state.images, state.bad = state.epoch + 1, 0, 0, 0
        state.loss, state.errors = 0.0, 0.0
        return figures

    def _validate(self) -> tuple[float, float, float]:
        """Loss, error and top-5 error on the validation set, each process taking its share."""
        scores = score(self.evaluated, self.feed.validation(self.part), autocast=self.fabric.autocast())
        count = len(scores.labels)
        loss = scores.loss * count if count else 0.0
        sums = torch.tensor([loss, scores.errors, scores.top5_errors, count], dtype=torch.float64)
        loss, errors, top5_errors, count = self._sum(sums).tolist()
        return loss / count, errors / count, top5_errors / count

    def _sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, on the CPU."""
        if self.fabric.world_size == 1:
            return values
        total = self.fabric.all_reduce(values.to(self.fabric.device), reduce_op="sum")
        assert isinstance(total, Tensor)
        return total.cpu()

    def _save(self) -> str:
        """Writes a checkpoint, but none of broken weights; its path."""
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise self._not_finite("network", self.step)
        if self.main:
            contents = {
                "recipe": to_dict(self.recipe),
                "images": self.feed.fingerprint,
                "state": asdict(self.state),
                "rate": self.rate.state(),
            }
            tensors = checkpoint.collect(self.model, self.optimizer, self.average)
            self.run.checkpoints.save(self.step, tensors, contents)
        self.fabric.barrier()
        return str(self.run.checkpoints.path(self.step))

    def _restore(self) -> Path | None:
        """Takes up the newest whole checkpoint, if there is one; its path."""
        found = self.run.checkpoints.load()
        if found is None:
            return None
        path, tensors, contents = found
        self.run.check_same(self.recipe, str(path), from_dict(Recipe, contents["recipe"], str(path)))
        if contents.get("images") != self.feed.fingerprint:
            raise _other_images(path)
        checkpoint.restore(tensors, self.model, self.optimizer, self.average, path)
        self.state = State(**contents["state"])
        self.rate.restore(contents["rate"])
        return path

    def _not_finite(self, what: str, step: int) -> UserError:
        files = self.run.checkpoints.files()
        good = f"the last good checkpoint is {files[-1]}" if files else "there is no checkpoint yet"
        return UserError(
            f"the {what} is not finite at step {step} (epoch {(step - 1) // len(self.feed) + 1}) with learning rate "
            f"{self.rate.at(step - 1):g}: try a lower --optimizer.lr than {self.recipe.optimizer.lr:g}; {good}"
        )


def train(recipe: Recipe, run: Run, settings: Settings) -> dict[str, Any]:
    """Trains, then looks at the test set once, with the kept weights; of a finished run, reads what it found then.

    A finished run that has not looked yet, or whose recipe now has other views of the test images, is tested alone: its
    weights are all that this needs.

    Returns:
        The results, as written to ``results.json``; without ``test``, if the settings say not to look. Of processes
        that take part in a training or a test, the first one has them.

    Raises:
        Stopped: After Ctrl-C or SIGTERM.
        UserError: If anything given does not fit, or the loss is no longer finite.
    """
    if run.results_path.is_file():
        stored = run.read_recipe()
        run.check_same(recipe, str(run.recipe_path), stored)
        known: dict[str, Any] = read_json(run.results_path)
        if ("test" in known and stored == recipe) or not settings.test:
            return known
        return _test_finished(recipe, run, settings, known)
    trainer = Trainer(recipe, run, settings)
    trainer.train()
    if not trainer.main:
        return {}
    state, feed = trainer.state, trainer.feed
    results = {
        **(_test(run, feed, trainer.fabric.device) if settings.test else {}),
        "validation_error": state.best_error,
        "validation_loss": state.best_loss,
        "best_epoch": state.best_epoch,
        "epochs": state.epoch,
        "wall_seconds": state.seconds,
        "cpu_seconds": state.cpu_seconds,
        "epoch_seconds": state.seconds / max(1, state.epoch),
        "parameters": learned(trainer.model),
        "bad_images": feed.bad,
    }
    run.finish(results)
    return results


def _test_finished(recipe: Recipe, run: Run, settings: Settings, known: dict[str, Any]) -> dict[str, Any]:
    """``known`` with the test as the recipe now has it. The recipe is written last: a test cut off is made again."""
    feed, fabric = open_feed(recipe, settings), create_fabric(recipe, settings)
    if read_json(run.facts_path).get("images", feed.fingerprint) != feed.fingerprint:
        raise _other_images(run.folder)
    fabric.launch()
    if fabric.global_rank != 0:
        return {}
    run.begin(run.read_recipe(), _facts(fabric, feed, known["epochs"] * len(feed)))
    tests = _test(run, feed, fabric.device)
    rest = {name: value for name, value in known.items() if name not in ("test", *OTHER_WAYS)}
    results = {**tests, **rest, "bad_images": {**known["bad_images"], **feed.bad}}
    run.finish(results)
    describe_pretrained(run.folder, **feed.describe())  # which names the views
    run.write_recipe(recipe)
    return results


def _facts(fabric: Fabric, feed: Feed, first_step: int) -> dict[str, Any]:
    """Of a session, for `Run.begin`."""
    return {"processes": fabric.world_size, "first_step": first_step, "images": feed.fingerprint}


def _other_images(where: Path) -> UserError:
    return UserError(f"cannot resume: {where} was made with other images than those that are there now (--data-dir)")


def _test(run: Run, feed: Feed, device: torch.device) -> dict[str, Any]:
    """The kept weights on the test images, in all their ways."""
    model = from_pretrained(run.folder).to(device)
    return {name: score(model, batches).report(feed.classes) for name, batches in feed.tests(device).items()}
