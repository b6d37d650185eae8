"""Puts the best of several runs into the package: the one with the lowest validation error, in half precision.

    python tools/ship_weights.py runs/mnist_aug/epitomic_small-*

The runs must differ only in their seed; unfinished ones are skipped. Weights that ship already for the same network and
images are replaced. The run's figures go into the weights' config; tests compare them with results/ and evaluate the
weights.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from epitomic.models.pretrained import CONFIG, SHIPPED, WEIGHTS
from epitomic.support.errors import UserError
from epitomic.support.files import read_sealed, write_sealed
from epitomic.support.options import differences
from epitomic.support.tensorfile import load_tensors, save_tensors
from epitomic.training.run_folder import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    runs = [RunFolder(folder) for folder in parser.parse_args().runs]
    finished = {run: run.results for run in runs if run.results and "test" in run.results}
    if not finished:
        raise UserError("none of these is a finished run that has looked at the test images")
    first = next(iter(finished))
    for run in finished:
        changed = [path for path, *_ in differences(first.read_recipe(), run.read_recipe())]
        if set(changed) - {"seed"}:
            raise UserError(f"{run.folder} is not another seed of {first.folder}: they differ in {', '.join(changed)}")

    best = min(finished, key=lambda run: (finished[run]["validation_error"], run.seed))
    results, facts, config = finished[best], best.facts, read_sealed(best.folder / CONFIG)
    tensors, state = load_tensors(best.folder / WEIGHTS)
    tensors = {name: t.half() if t.dtype == torch.float32 else t for name, t in tensors.items()}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise UserError(f"{best.folder / WEIGHTS}: {name!r} is too large for half precision")
    folder = SHIPPED / f"{config['model']}-{config['dataset']}"
    save_tensors(folder / WEIGHTS, tensors, state)
    trained = {"command": facts["command"], "commit": facts["commit"], "chosen": "lowest validation error of its table"}
    figures = {"test_errors": results["test"]["errors"], "validation_error": results["validation_error"]}
    write_sealed(folder / CONFIG, {**config, "trained": {**trained, **figures}})
    print(json.dumps({"run": str(best.folder), "folder": folder.name, **figures}))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"ship_weights: {error}")
