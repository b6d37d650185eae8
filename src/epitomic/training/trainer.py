"""The training loop.

Everything random depends on (seed, epoch, batch) or (seed, epoch, image) alone: the order of the images and their
augmentation, which a `Feed` makes, and the dropout masks (`models.dropout`). So a checkpoint needs no generator, and a
run that was stopped at any moment continues to the same bits.
"""

from __future__ import annotations

import itertools
import math
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import nn

from epitomic.data.feed import BAD_SHARE, SKIP, Batch, Feed, Part, too_many
from epitomic.evaluation import score
from epitomic.models import FitsImages, create_model, save_pretrained
from epitomic.models.dropout import key_dropout
from epitomic.models.pretrained import find_pretrained, load_weights
from epitomic.ops.selection import recorded
from epitomic.support.devices import describe_device
from epitomic.support.errors import UserError
from epitomic.support.options import from_dict, to_dict
from epitomic.training import checkpoint
from epitomic.training.averaging import WeightAverage
from epitomic.training.compiling import compiled
from epitomic.training.optimizer import create_optimizer
from epitomic.training.pace import Pace
from epitomic.training.parallel import connect, create_fabric, normalize_together, share_statistics, sum_over_processes
from epitomic.training.progress import TrainingProgress
from epitomic.training.recipe import Recipe
from epitomic.training.run_folder import TENSORBOARD, RunFolder
from epitomic.training.schedule import LearningRate
from epitomic.training.setup import Settings, check_batches, check_model, open_feed
from epitomic.training.signals import Stopped, StopSignals
from epitomic.training.state import Clock, State, Sums
from epitomic.training.tensorboard import TensorBoard


class Trainer:
    """One training, from its start or from its last checkpoint.

    Args:
        recipe: What to train.
        run: Folder that the run is written to.
        settings: How to run it.
        feed: The images of the recipe, if they are open already.
    """

    def __init__(self, recipe: Recipe, run: RunFolder, settings: Settings, feed: Feed | None = None) -> None:
        self.recipe, self.run, self.settings = recipe, run, settings
        check_model(recipe)
        self.feed = feed or open_feed(recipe, settings)
        check_batches(recipe, settings, self.feed.images)

        self.fabric = create_fabric(recipe, settings)
        connect(self.fabric, settings)
        self.main = self.fabric.global_rank == 0
        self.part = Part(self.fabric.global_rank, self.fabric.world_size, recipe.accumulate, self.fabric.device)

        self.dtype = torch.float64 if recipe.precision == "64-true" else torch.float32
        self.model = normalize_together(
            self._create_model(), settings.sync_batch_norm, self.fabric.device, self.fabric.world_size
        ).to(self.fabric.device, self.dtype)
        self.average = WeightAverage(self.model, recipe.ema) if recipe.ema else None
        self.optimizer = create_optimizer(self.model, recipe.optimizer, recipe.start)
        self.rate = LearningRate(recipe.schedule, recipe.optimizer.lr, len(self.feed), recipe.epochs, recipe.steps)
        self.state = State()
        restored = self._restore()
        self.choices = run.read_choices()
        trained = self._compiled() if recipe.compile else self.model
        self.wrapped, self.wrapped_optimizer = self.fabric.setup(trained, self.optimizer)
        self.fabric.barrier()  # no process may rename or write checkpoints before all have read theirs
        if self.main and restored is not None:
            self.run.checkpoints.set_aside_after(restored)

    def _create_model(self) -> nn.Module:
        torch.manual_seed(self.recipe.seed)  # for the initial weights; nothing else draws from this generator
        start, resumed = self.recipe.start, bool(self.run.checkpoints.files())
        model = create_model(
            self.recipe.model.name,
            num_classes=len(self.feed.classes),
            in_channels=self.feed.channels,
            image_size=self.feed.image_size,
            **self.recipe.model.arguments(),
        )
        if start.weights and not resumed:
            load_weights(model, find_pretrained(start.weights), new_head=True)
        elif isinstance(model, FitsImages) and not resumed:
            images, _ = next(self.feed.stream(0, 0, Part()))  # the first global batch, the same in every process
            model.fit(images)
        return model

    def _compiled(self) -> nn.Module:
        size = self.feed.image_size
        example = torch.zeros(1, self.feed.channels, size, size, device=self.fabric.device, dtype=self.dtype)
        return compiled(self.model, self.fabric, example.contiguous(memory_format=torch.channels_last))

    @property
    def step(self) -> int:
        """Number of finished steps."""
        return self.state.epoch * len(self.feed) + self.state.batch

    @property
    def evaluated(self) -> nn.Module:
        """The network that is validated and kept: the average of the weights if there is one."""
        return self.average.model if self.average else self.model

    def train(self) -> None:
        """Trains to the end of the recipe.

        Raises:
            Stopped: After Ctrl-C or SIGTERM, when the step is done and saved.
            UserError: If the loss or a weight is no longer finite, or a file cannot be written.
        """
        recipe, state = self.recipe, self.state
        processes = self.fabric.world_size
        if self.main:
            self.run.begin(recipe, processes=processes, first_step=self.step, images=self.feed.fingerprint)
        quiet = self.settings.quiet or not self.main
        clock, saved = Clock(state.seconds, state.cpu_seconds), time.monotonic()
        self.wrapped.train(not recipe.start.freeze)  # frozen layers keep their statistics
        with (
            TensorBoard(self.run.folder / TENSORBOARD, self.step, enabled=self.main) as log,
            StopSignals() as stop,
            TrainingProgress(recipe.epochs, self.rate.total, self.step, recipe.batch_size, quiet=quiet) as progress,
            recorded(self.choices, benchmark=self.settings.benchmark) as self.selection,
        ):
            progress.say("training on " + describe_device(self.fabric.device, self.settings.accelerator, processes))
            while state.epoch < recipe.epochs and not self.rate.finished:
                stream = self.feed.stream(state.epoch, state.batch, self.part)
                while state.batch < len(self.feed) and self.step < self.rate.total:
                    lr = self.rate.at(self.step)
                    sums = self._train_step(stream, lr)
                    due = time.monotonic() - saved > self.settings.save_every
                    sums, due, stopped = self._agree(sums, due, stop.received != 0)
                    if not math.isfinite(sums.loss):
                        raise self._not_finite("loss", self.step + 1)
                    state.end_step(sums, expected=self.feed.count(state.batch))
                    if state.bad > BAD_SHARE * self.feed.images:
                        raise too_many(state.bad, self.feed.images, self.feed.bad)
                    state.seconds, state.cpu_seconds = clock.read()
                    progress.end_step(state.epoch, self.step, state.mean_loss)
                    log.end_step(self.step, lr=lr, loss=sums.loss / max(1, sums.images))
                    if stopped:
                        raise Stopped(stop.received or signal.SIGTERM, self._save())
                    if due:
                        self._save()
                        saved = time.monotonic()
                figures = self._end_epoch()
                state.seconds, state.cpu_seconds = clock.read()
                log.end_epoch(self.step, **figures, seconds=state.seconds)
                best = state.best_epoch == state.epoch - 1 and recipe.keep != "last"  # the last one needs no mark
                progress.end_epoch(state.epoch - 1, figures["train_loss"], figures["val_error"], best)
                path, saved = self._save(), time.monotonic()
                *_, stopped = self._agree(Sums(0.0, 0, 0), False, stop.received != 0)  # it came while validating
                if stopped:
                    raise Stopped(stop.received or signal.SIGTERM, path)

    @classmethod
    def rehearsal(cls, recipe: Recipe, settings: Settings, feed: Feed, seconds: float) -> Pace:
        """Measures the pace of a training for some seconds, in a folder that is removed again."""
        with TemporaryDirectory() as folder:
            trainer = cls(recipe, RunFolder(folder), settings, feed)
            with recorded(trainer.choices, benchmark=settings.benchmark) as trainer.selection:
                return trainer._rehearse(seconds)

    def _rehearse(self, seconds: float) -> Pace:
        self.wrapped.train(not self.recipe.start.freeze)
        self._train_step(self.feed.stream(0, 0, self.part), 0.0)  # warms up
        stream, times = self.feed.stream(0, 0, self.part), [time.monotonic()]
        while self.state.batch < len(self.feed) and (len(times) < 4 or times[-1] - times[0] < seconds):
            self.state.end_step(self._train_step(stream, 0.0), expected=self.feed.count(self.state.batch))
            times.append(time.monotonic())
        del stream  # ends its worker processes
        self._end_epoch()
        self._save()
        ended = time.monotonic()
        begin, steps = times[1] - times[0], [after - before for before, after in itertools.pairwise(times[1:])]
        step = sum(steps) / len(steps) if steps else begin
        return Pace(begin, step, ended - times[-1])

    def _train_step(self, stream: Iterator[Batch], lr: float) -> Sums:
        """Does one step on this process's part of the global batch."""
        recipe, state, step = self.recipe, self.state, self.step
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["rate"]
        # The gradient is the mean over the images of the global batch, and Fabric averages over the processes.
        share = self.feed.count(state.batch) / self.fabric.world_size
        loss_sum, errors, count = 0.0, 0, 0
        for piece, places in enumerate(self.part.slices(recipe.batch_size)):
            images, labels = next(stream)  # (N, C, H, W), (N,)
            images = images.to(self.fabric.device, self.dtype, memory_format=torch.channels_last)
            labels = labels.to(self.fabric.device)
            key_dropout(self.model, recipe.seed, step, places.start)
            with self.fabric.no_backward_sync(self.wrapped, enabled=piece + 1 < recipe.accumulate):
                scores = self.wrapped(images)  # (N, classes)
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
        share_statistics(self.fabric, self.model)
        if self.average:
            self.average.update(step)
        return Sums(loss_sum, errors, count)

    def _agree(self, sums: Sums, due: bool, stop: bool) -> tuple[Sums, bool, bool]:
        """Returns the sums over all processes, whether the first one wants to save, and whether any one must stop."""
        loss, errors, images, saves, stops = sum_over_processes(self.fabric, *sums, due and self.main, stop)
        return Sums(loss, int(errors), int(images)), bool(saves), bool(stops)

    def _end_epoch(self) -> dict[str, float]:
        """Validates, keeps the weights if they are the best so far, and turns to the next epoch."""
        state = self.state
        val_loss, val_error, val_top5_error = self._validate()
        if not math.isfinite(val_loss):
            raise self._not_finite("validation loss", self.step)
        if state.is_better(val_error, val_loss) or self.recipe.keep == "last":
            state.best_error, state.best_loss, state.best_epoch = val_error, val_loss, state.epoch
            if self.main:
                self.run.check_there()
                save_pretrained(self.evaluated, self.run.folder, **self.feed.describe())
        figures = {
            "lr": self.rate.at(self.step - 1),
            "train_loss": state.mean_loss,
            "train_error": state.mean_error,
            "val_loss": val_loss,
            "val_error": val_error,
            "val_top5_error": val_top5_error,
        }
        state.rows.append([state.epoch, self.step, *figures.values(), state.best_epoch])
        if self.main:
            self.run.write_metrics(state.rows)
        self.rate.end_epoch(val_error)
        state.end_epoch()
        return figures

    def _validate(self) -> tuple[float, float, float]:
        """Returns loss, error and top-5 error on the validation images, of which each process takes its share."""
        scores = score(self.evaluated, self.feed.validation(self.part), autocast=self.fabric.autocast())
        count = len(scores.labels)
        sums = (scores.loss * count if count else 0.0, scores.errors, scores.top5_errors, count)
        loss, errors, top5_errors, images = sum_over_processes(self.fabric, *sums)
        return loss / images, errors / images, top5_errors / images

    def _save(self) -> str:
        """Writes a checkpoint and returns its path. Weights that are not finite are not saved."""
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise self._not_finite("network", self.step)
        if self.main:
            contents = {
                "recipe": to_dict(self.recipe),
                "images": self.feed.fingerprint,
                "state": asdict(self.state),
                "rate": self.rate.state(),
            }
            self.run.write_choices(self.selection.choices())  # first, so that no checkpoint comes without them
            tensors = checkpoint.collect(self.model, self.optimizer, self.average)
            self.run.check_there()
            self.run.checkpoints.save(self.step, tensors, contents)
        self.fabric.barrier()
        return str(self.run.checkpoints.path(self.step))

    def _restore(self) -> Path | None:
        """Continues from the newest intact checkpoint and returns its path, or None if there are no checkpoints."""
        found = self.run.checkpoints.load()
        if found is None:
            return None
        path, tensors, contents = found
        self.run.check_same(self.recipe, path, from_dict(Recipe, contents.get("recipe"), str(path)))
        self.run.check_images(path, contents.get("images"), self.feed.fingerprint)
        epochs, batches = self.recipe.epochs, len(self.feed)
        self.state = State.read(contents.get("state"), str(path), epochs=epochs, batches=batches)
        self.rate.restore(contents.get("rate"), str(path))
        checkpoint.restore(tensors, self.model, self.optimizer, self.average, path)
        return path

    def _not_finite(self, what: str, step: int) -> UserError:
        files = self.run.checkpoints.files()
        good = f"the last good checkpoint is {files[-1]}" if files else "there is no checkpoint yet"
        return UserError(
            f"the {what} is not finite at step {step} (epoch {(step - 1) // len(self.feed) + 1}) with learning rate "
            f"{self.rate.at(step - 1):g}: try a lower --optimizer.lr than {self.recipe.optimizer.lr:g}; {good}"
        )
