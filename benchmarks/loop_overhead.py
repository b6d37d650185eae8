"""Claim: the training loop costs at most 5 % over the bare forward / backward / step of the network, data included.

Both sides train `epitomic_small` (or --model) on batches of 128 images of MNIST's shape. The bare side has one of the
loop's batches at hand, in the loop's memory format; the loop's side is `Trainer` with everything it does: order,
batches, standardisation, weight average, progress, logs, one checkpoint and one small validation at the end. Rounds
alternate; the figure is the median of the ratios. It is below 1 where the loop's dropout masks are cheaper than
`nn.Dropout`, which the bare side has; --no-dropout leaves both out, and then it is what the loop adds.

    python benchmarks/loop_overhead.py
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F

from epitomic.data import ImageSet, Split
from epitomic.training import setup
from epitomic.training.loop import Trainer
from epitomic.training.recipes import RECIPES
from epitomic.training.run import Run

WARM_UP = 3  # bare steps that are not timed: the first ones allocate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="epitomic_small")
    parser.add_argument("--recipe", default="mnist")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--no-dropout", action="store_true")
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

    ratios = []
    with mock.patch.object(setup, "load_set", return_value=digits), tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds + 1):
            trainer = Trainer(recipe, Run(Path(folder) / str(number)), setup.Settings(quiet=True))
            bare = time_bare(trainer, args.steps)
            began = time.perf_counter()
            trainer.train()
            looped = (time.perf_counter() - began) / args.steps
            if number:  # the first one warms up
                ratios.append(looped / bare)
                print(f"bare {1e3 * bare:.2f} ms a step   loop {1e3 * looped:.2f} ms   {ratios[-1]:.3f}")
    print(f"{args.model}: the loop takes {statistics.median(ratios):.3f} of the bare step, median of {args.rounds}")


def time_bare(trainer: Trainer, steps: int) -> float:
    model, optimizer = trainer.model.train(), trainer.optimizer
    images, labels = next(trainer.feed.stream(0, 0, trainer.part))
    images = images.to(memory_format=torch.channels_last)  # `contiguous` lets one channel be as it is
    began = 0.0
    for step in range(-WARM_UP, steps):
        if step == 0:
            began = time.perf_counter()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.perf_counter() - began) / steps


if __name__ == "__main__":
    main()
