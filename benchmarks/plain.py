"""Plain 3 x 3 layers, and a VGG-11 after `fuse_(plain=True)`, against torch's own in their best form.

    python benchmarks/plain.py [--repetitions 7] [--csv FILE]

Each row is a training step, interleaved. Torch's side runs in contiguous and channels_last memory, eager and compiled;
ours runs in both formats. The fastest of each side counts.
"""

import argparse
import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from epitomic import WinogradConv2d, fuse_
from epitomic.bench.cases import FORMATS
from epitomic.bench.records import write_records
from epitomic.bench.timing import interleaved
from epitomic.support.machine import timing_facts

LAYERS = ((192, 256), (256, 384), (384, 512))  # channels of layers 3 to 5 of the paper's networks
VGG_11 = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")


def vgg_11() -> nn.Sequential:
    """The convolutions of VGG-11 (Simonyan and Zisserman, 2014) and one linear layer, for 64 pixels."""
    layers: list[nn.Module] = []
    channels = 3
    for item in VGG_11:
        if isinstance(item, str):
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, item, 3, padding=1), nn.ReLU()]
            channels = item
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 2 * 2, 100))


def step(call: Callable[[Tensor], Tensor], parameters: list[Tensor], x: Tensor, dy: Tensor) -> None:
    torch.autograd.grad(call(x), parameters, dy)


def contest(name: str, torch_model: nn.Module, our_model: nn.Module, x: Tensor, repetitions: int) -> dict[str, object]:
    """Times both models and returns a row of the table."""
    torch.compiler.reset()
    largest = check_equal(torch_model, our_model, x)
    steps = {}
    for side, model in (("torch", torch_model), ("ours", our_model)):
        for form, layout in FORMATS.items():
            for compiled in (False, True) if side == "torch" else (False,):
                copied = copy.deepcopy(model).to(memory_format=layout)  # type: ignore[call-overload]
                call = torch.compile(copied, dynamic=False) if compiled else copied
                image = x.contiguous(memory_format=layout).requires_grad_(x.requires_grad)
                inputs = [*copied.parameters(), *([image] if x.requires_grad else [])]
                dy = torch.randn_like(call(image))
                steps[side, form + (", compiled" if compiled else "")] = partial(step, call, inputs, image, dy)
    times = interleaved(steps, repetitions)
    best = {
        side: min((key for key in times if key[0] == side), key=lambda key: times[key].median)
        for side in ("torch", "ours")
    }
    speedup = times[best["torch"]] / times[best["ours"]]
    return {
        "name": name,
        "torch_ms": round(times[best["torch"]].median * 1e3, 2),
        "torch_form": best["torch"][1],
        "ms": round(times[best["ours"]].median * 1e3, 2),
        "form": best["ours"][1],
        "speedup": str(speedup),
        "share": round(1 / speedup.median, 3),
        "largest_difference": f"{largest:.1e}",
    }


def check_equal(torch_model: nn.Module, our_model: nn.Module, x: Tensor) -> float:
    """Returns the largest difference of outputs and parameter gradients, as a share of the largest value of each."""
    results = []
    for model in (torch_model, our_model):
        y = model(x)
        results.append([y, *torch.autograd.grad(y.square().mean(), list(model.parameters()))])
    return max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*results, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    facts, rows = timing_facts(), []
    for channels, filters in LAYERS:
        theirs, ours = nn.Conv2d(channels, filters, 3, padding=1), WinogradConv2d(channels, filters, 3, padding=1)
        ours.load_state_dict(theirs.state_dict())
        x = torch.randn(32, channels, 17, 17, requires_grad=True)
        rows.append(contest(f"{channels}->{filters}, 17 px, batch 32", theirs, ours, x, args.repetitions))
        print(rows[-1], flush=True)
    theirs_network = vgg_11()
    fused = copy.deepcopy(theirs_network)
    fuse_(fused, plain=True)
    rows.append(contest("VGG-11, 64 px, batch 32", theirs_network, fused, torch.randn(32, 3, 64, 64), args.repetitions))
    print(rows[-1], flush=True)
    write_records(args.csv, rows[0], (row.values() for row in rows), facts)


if __name__ == "__main__":
    main()
