"""What each epitomic layer matched: responses and winning positions, taken while the network runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epitomic.layers import EpitomicConv2d


@dataclass(frozen=True)
class Match:
    """One epitomic layer on one batch.

    Attributes:
        name: Of the layer in the network.
        layer: The layer.
        input: What it was given, (N, C, H, W).
        response: Its output, (N, K, oh, ow), the bias included.
        positions: The winning p of Eq. 2, (N, K, oh, ow), row-major in the D x D window.
    """

    name: str
    layer: EpitomicConv2d
    input: Tensor
    response: Tensor
    positions: Tensor


def epitomic_layers(model: nn.Module) -> list[tuple[str, EpitomicConv2d]]:
    """The epitomic layers by name, in the network's order."""
    return [(name, m) for name, m in model.named_modules() if isinstance(m, EpitomicConv2d)]


@contextlib.contextmanager
def recording(model: nn.Module) -> Iterator[list[Match]]:
    """While inside, each run of the network leaves a `Match` per epitomic layer in the list."""
    matches: list[Match] = []

    def record(name: str, layer: EpitomicConv2d, x: Tensor) -> Tensor:
        response, positions = layer.match(x)
        matches.append(Match(name, layer, x.detach(), response.detach(), positions))
        return response

    layers = epitomic_layers(model)
    try:
        for name, layer in layers:
            layer.forward = lambda x, name=name, layer=layer: record(name, layer, x)  # type: ignore[method-assign, misc]
        yield matches
    finally:
        for _, layer in layers:
            layer.__dict__.pop("forward", None)


@torch.no_grad()
def match_layers(model: nn.Module, x: Tensor) -> tuple[Tensor, list[Match]]:
    """Class scores of a batch, and what each epitomic layer matched; no matches if there is no such layer."""
    training = model.training
    model.eval()
    with recording(model) as matches:
        scores = model(x)
    model.train(training)
    return scores, matches
