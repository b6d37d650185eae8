"""Claim: mean + contrast normalisation adds at most 10 % to a training step of the layers that the paper normalises.

The same layer with and without, in turn; the figure is the median of the ratios (quartiles).

    python benchmarks/normalization.py
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from epitomic import EpitomicConv2d

LAYERS = {  # channels, epitomes, W, D, pixels, batch
    "3x3, pool 2": (96, 192, 3, 2, 32, 64),
    "paper layer 2": (96, 192, 6, 3, 54, 16),
    "paper layer 6": (512, 512, 3, 3, 17, 32),
}
WARM = 2  # rounds that do not count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="auto")
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    for name, (channels, epitomes, kernel, pool, size, batch) in LAYERS.items():
        plain, normalized = (
            EpitomicConv2d(channels, epitomes, kernel, pool_size=pool, normalize=normalize, algorithm=args.algorithm)
            for normalize in (False, True)
        )
        x = torch.randn(batch, channels, size, size).contiguous(memory_format=torch.channels_last).requires_grad_()
        ratios: dict[str, list[float]] = {"forward": [], "training": []}
        for _ in range(WARM + args.rounds):
            seconds = [time_layer(layer, x) for layer in (plain, normalized)]
            for kind, before, after in zip(ratios, *seconds, strict=True):
                ratios[kind].append(after / before)
        for kind, values in ratios.items():
            low, middle, high = statistics.quantiles(values[WARM:], n=4)
            print(f"{name:<16}{kind:<10}{middle:.3f} ({low:.3f}-{high:.3f}) of the time without")


def time_layer(layer: EpitomicConv2d, x: torch.Tensor) -> tuple[float, float]:
    """Seconds of a forward pass, and of a training step."""
    began = time.perf_counter()
    with torch.no_grad():
        layer(x)
    middle = time.perf_counter()
    y = layer(x)
    y.backward(torch.ones_like(y))
    x.grad = None
    return middle - began, time.perf_counter() - middle


if __name__ == "__main__":
    main()
