"""Puts the best of several finished runs into the package: the one of the lowest validation error, in half precision.

    python tools/ship_weights.py runs/mnist_aug/epitomic_small-*

The run's test figures go into its config.json; a test evaluates the weights against them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from epitomic.files import read_json, write_json
from epitomic.models.pretrained import CONFIG, SHIPPED, WEIGHTS
from epitomic.tensorfile import load_tensors, save_tensors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    runs = parser.parse_args().runs

    results = {run: read_json(run / "results.json") for run in runs}
    best = min(runs, key=lambda run: (results[run]["validation_error"], read_json(run / "recipe.json")["seed"]))
    config, facts = read_json(best / CONFIG), read_json(best / "run.json")
    tensors, state = load_tensors(best / WEIGHTS)
    tensors = {name: t.half() if t.dtype == torch.float32 else t for name, t in tensors.items()}
    folder = SHIPPED / f"{config['model']}-{config['dataset']}"
    save_tensors(folder / WEIGHTS, tensors, state)
    trained = {"command": facts["command"], "commit": facts["commit"], "chosen": "lowest validation error of its table"}
    figures = {"test_errors": results[best]["test"]["errors"], "validation_error": results[best]["validation_error"]}
    write_json(folder / CONFIG, {**config, "trained": {**trained, **figures}})
    print(json.dumps({"run": str(best), "folder": folder.name, **figures}))


if __name__ == "__main__":
    main()
