"""What each epitomic layer matched: its responses and winning positions, recorded while the network runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epitomic.evaluation import evaluating
from epitomic.layers import EpitomicConv2d


@dataclass(frozen=True)
class Match:
    """What one epitomic layer matched on one batch.

    Attributes:
        name: Name of the layer in the network.
        layer: The layer itself.
        input: Input of the layer, (N, C, H, W).
        response: Output of the layer with its bias, (N, K, oh, ow).
        positions: Winning position p of Eq. 2, (N, K, oh, ow). Positions are numbered row by row in the D x D window.
    """

    name: str
    layer: EpitomicConv2d
    input: Tensor
    response: Tensor
    positions: Tensor

    def strongest(self, count: int) -> list[int]:
        """Numbers of the epitomes that respond most to the first image, in ascending order."""
        total = self.response[0].relu().sum((1, 2))
        return sorted(total.topk(min(count, len(total))).indices.tolist())


def epitomic_layers(model: nn.Module) -> list[tuple[str, EpitomicConv2d]]:
    """Names and epitomic layers, in the order of the network."""
    return [(name, m) for name, m in model.named_modules() if isinstance(m, EpitomicConv2d)]


@contextlib.contextmanager
def recording(model: nn.Module) -> Iterator[list[Match]]:
    """Inside the block, each run of the network adds a `Match` to the list for each epitomic layer."""
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
    """Class scores of a batch, and what each epitomic layer matched. The list is empty if there is no such layer."""
    with evaluating(model), recording(model) as matches:
        return model(x), matches


def first_match(matches: list[Match]) -> Match | None:
    """The match of the first layer if that layer sees the image itself, with 1 or 3 channels."""
    return matches[0] if matches and matches[0].layer.in_channels in (1, 3) else None
