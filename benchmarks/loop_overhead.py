"""Claim: the training loop adds at most 5 % to the bare forward, backward and optimizer step, data included.

Both sides train `epitomic_small` (or --model) on batches of 128 images of MNIST's shape. The bare side has one batch of
the loop at hand, in the loop's memory format. The other side is `Trainer` with everything it does: order, batches,
standardisation, weight average, progress, logs, one checkpoint and one small validation at the end. The sides run in
turn, and the figure is the median of the ratios. It can be below 1, because the loop's dropout masks are cheaper than
those of `nn.Dropout`, which the bare side uses. --no-dropout leaves both out, to show what the loop alone adds.

    python benchmarks/loop_overhead.py
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F

from epitomic.bench.timing import interleaved
from epitomic.data.small.splits import ImageSet, Split
from epitomic.training import setup
from epitomic.training.recipes import RECIPES
from epitomic.training.run_folder import RunFolder
from epitomic.training.trainer import Trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="epitomic_small", help="network (default: epitomic_small)")
    parser.add_argument("--recipe", default="mnist", help="recipe (default: mnist)")
    parser.add_argument("--steps", type=int, default=100, help="steps of a timing (default: 100)")
    parser.add_argument("--rounds", type=int, default=4, help="timings of each side (default: 4)")
    parser.add_argument("--no-dropout", action="store_true", help="train without dropout")
    args = parser.parse_args()

    recipe = RECIPES[args.recipe]
    recipe = replace(recipe, model=replace(recipe.model, name=args.model), epochs=1)
    if args.no_dropout:
        recipe = replace(recipe, model=replace(recipe.model, dropout=0.0, conv_dropout=0.0))
    recipe = replace(recipe, data=replace(recipe.data, validation=128))
    size = recipe.batch_size * args.steps + recipe.data.validation
    images = torch.randint(0, 256, (size, 1, 28, 28), dtype=torch.uint8)
    split = Split(images, torch.randint(0, 10, (size,)))
    digits = ImageSet("mnist", tuple("0123456789"), split, split)

    with mock.patch.object(setup, "load_set", return_value=digits), tempfile.TemporaryDirectory() as folder:
        trainers = [
            Trainer(recipe, RunFolder(Path(folder) / str(number)), setup.Settings(quiet=True))
            for number in range(args.rounds + 2)
        ]
        bare, *looped = trainers  # a trainer trains once; the first round of `interleaved` does not count
        waiting = iter(looped)
        sides = {"bare": partial(train_bare, bare, args.steps), "loop": lambda: next(waiting).train()}
        times = interleaved(sides, args.rounds)
    bare_ms, loop_ms = (1e3 * times[side].median / args.steps for side in ("bare", "loop"))
    print(f"{args.model}: bare {bare_ms:.2f} ms a step, loop {loop_ms:.2f} ms; ratio {times['loop'] / times['bare']}")


def train_bare(trainer: Trainer, steps: int) -> None:
    """Takes ``steps`` training steps on one batch."""
    model, optimizer = trainer.model.train(), trainer.optimizer
    images, labels = next(trainer.feed.stream(0, 0, trainer.part))
    images = images.to(memory_format=torch.channels_last)  # `contiguous` would not change the strides of one channel
    for _ in range(steps):
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
