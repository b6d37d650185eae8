"""Puts the best of several runs into the package: the finished one of the lowest validation error, in half precision.

    python tools/ship_weights.py runs/mnist_aug/epitomic_small-*

The runs must differ in their seed alone. Weights of the same network for the same images that ship so far are replaced.
The run's figures go into config.json; tests hold them to results/ and evaluate the weights.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from epitomic.errors import UserError
from epitomic.files import read_json, write_json
from epitomic.models.pretrained import CONFIG, SHIPPED, WEIGHTS
from epitomic.options import differences
from epitomic.reproduction.results import is_finished
from epitomic.tensorfile import load_tensors, save_tensors
from epitomic.training.run import Run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    runs = [run for run in parser.parse_args().runs if is_finished(run)]
    finished = [run for run in runs if "test" in read_json(run / "results.json")]
    if not finished:
        raise UserError("none of these is a finished run that has looked at the test images")
    for run in finished:
        changed = [path for path, *_ in differences(Run(finished[0]).read_recipe(), Run(run).read_recipe())]
        if set(changed) - {"seed"}:
            raise UserError(f"{run} is not another seed of {finished[0]}: they differ in {', '.join(changed)}")

    results = {run: read_json(run / "results.json") for run in finished}
    best = min(finished, key=lambda run: (results[run]["validation_error"], read_json(run / "recipe.json")["seed"]))
    config, facts = read_json(best / CONFIG), read_json(best / "run.json")
    tensors, state = load_tensors(best / WEIGHTS)
    tensors = {name: t.half() if t.dtype == torch.float32 else t for name, t in tensors.items()}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise UserError(f"{best / WEIGHTS}: {name!r} is too large for half precision")
    folder = SHIPPED / f"{config['model']}-{config['dataset']}"
    save_tensors(folder / WEIGHTS, tensors, state)
    trained = {"command": facts["command"], "commit": facts["commit"], "chosen": "lowest validation error of its table"}
    figures = {"test_errors": results[best]["test"]["errors"], "validation_error": results[best]["validation_error"]}
    write_json(folder / CONFIG, {**config, "trained": {**trained, **figures}})
    print(json.dumps({"run": str(best), "folder": folder.name, **figures}))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"ship_weights: {error}")
