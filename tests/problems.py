"""Random epitomic layers and inputs for the property tests, and what a comparison of two algorithms may expect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from epitomic import epitomic_conv2d
from epitomic.geometry import Geometry
from epitomic.ops.filters import gather_filters, mini_epitomes, normalize_filters

# Rounding of responses and gradients, as a share of the largest sum of absolute products.
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}


@dataclass
class Problem:
    """One call of `epitomic_conv2d`; ``options`` are its keyword arguments."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    options: dict[str, Any]
    geometry: Geometry
    wants: tuple[bool, bool, bool]  # gradients of x, weight, bias
    dy: Tensor = field(repr=False)

    def leaves(self) -> list[Tensor]:
        """The tensors that want gradients."""
        return [
            t for t, want in zip((self.x, self.weight, self.bias), self.wants, strict=True) if want and t is not None
        ]

    def run(self, algorithm: str, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Outputs, positions and gradients."""
        dtype = dtype or self.x.dtype
        tensors = [None if t is None else t.detach().to(dtype) for t in (self.x, self.weight, self.bias)]
        wanted = [t.requires_grad_() for t, w in zip(tensors, self.wants, strict=True) if w and t is not None]
        x, weight, bias = tensors
        assert x is not None
        assert weight is not None
        y, positions = epitomic_conv2d(x, weight, bias, **self.options, algorithm=algorithm, return_positions=True)
        grads = list(torch.autograd.grad(y, wanted, self.dy.to(dtype))) if wanted else []
        return y.detach(), positions, grads

    def responses(self) -> tuple[Tensor, float]:
        """All responses without bias in float64, (N, K, D*D, oh, ow), and their largest sum of absolute products."""
        g = self.geometry
        filters = gather_filters(mini_epitomes(self.weight.double(), g), g.kernel, g.epitome_stride)
        if self.options["normalize"]:
            filters = normalize_filters(filters, self.options["eps"])
        patches = F.unfold(self.x.double(), g.kernel, padding=g.padding, stride=g.stride)  # (N, C*W*W, L)
        responses = torch.einsum("kpf,nfl->nkpl", filters.flatten(2), patches)
        absolute = torch.einsum("kpf,nfl->nkpl", filters.flatten(2).abs(), patches.abs())
        scale = absolute.max().item() if absolute.numel() else 0.0
        return responses.unflatten(3, self.dy.shape[2:]), scale


@st.composite
def problems(draw: st.DrawFn, *, most_points: int = 9) -> Problem:
    """Any layer: filter, window and stride free of each other, mini or topographic, any layout of the input."""

    def pair(low: int, high: int) -> tuple[int, int]:
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    kernel, pool, step = pair(1, 6), pair(1, 4), draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 2), (3, 2)]))
    if max(-(-w // e) + d - 1 for w, d, e in zip(kernel, pool, step, strict=True)) > most_points:
        pool = (1 + pool[0] % 2, 1 + pool[1] % 2)
    stride = draw(st.one_of(st.none(), st.builds(pair, st.just(1), st.just(4))))
    mini = tuple(w + (d - 1) * e for w, d, e in zip(kernel, pool, step, strict=True))
    more = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (3, 4)]))  # beyond the mini-epitome: topographic
    geometry = Geometry.create(
        kernel_size=kernel,
        pool_size=pool,
        stride=stride,
        padding=pair(0, 2),
        epitome_size=(mini[0] + more[0], mini[1] + more[1]),
        epitome_stride=step,
    )
    n, c, k = draw(st.integers(0, 3)), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    height, width = (max(1, w - 2 * p) + draw(st.integers(0, 9)) for w, p in zip(kernel, geometry.padding, strict=True))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    torch.manual_seed(draw(st.integers(0, 2**31)))
    x = _in_layout(draw(st.sampled_from(LAYOUTS)), n, c, height, width, dtype)
    outputs = k * geometry.outputs[0] * geometry.outputs[1]
    bias = torch.randn(outputs, dtype=dtype) if draw(st.booleans()) else None
    wants = draw(st.sampled_from([(True, True, True)] * 3 + [(True, False, False), (False, True, False), (False,) * 3]))
    return Problem(
        x=x,
        weight=torch.randn(k, c, *geometry.epitome, dtype=dtype) + draw(st.sampled_from([0.0, 0.0, 3.0])),
        bias=bias,
        options={
            "kernel_size": kernel,
            "pool_size": pool,
            "stride": stride,
            "padding": geometry.padding,
            "epitome_stride": step,
            "normalize": draw(st.booleans()),
            "eps": 0.01,
        },
        geometry=geometry,
        wants=wants,
        dy=_in_layout(draw(st.sampled_from(LAYOUTS)), n, outputs, *geometry.output_size(height, width), dtype),
    )


LAYOUTS = ("contiguous", "channels_last", "strided", "expanded")


def _in_layout(layout: str, n: int, c: int, h: int, w: int, dtype: torch.dtype) -> Tensor:
    if layout == "strided":
        return torch.randn(n, 2 * c, w, h + 1, dtype=dtype)[:, ::2, :, 1:].transpose(2, 3)
    if layout == "expanded":
        return torch.randn(1, c, h, w, dtype=dtype).expand(n, c, h, w)
    x = torch.randn(n, c, h, w, dtype=dtype)
    return x.contiguous(memory_format=torch.channels_last) if layout == "channels_last" else x


def assert_same(problem: Problem, algorithm: str) -> None:
    """Runs ``algorithm`` against `reference` in float64: outputs, positions and gradients where the winner is clear."""
    tolerance = TOLERANCE[problem.x.dtype]
    responses, scale = problem.responses()
    limit = tolerance * max(scale, 1e-30)
    top = responses.topk(min(2, responses.shape[2]), dim=2).values
    clear = (top[:, :, 0] - top[:, :, -1] > 2 * limit) | (responses.shape[2] == 1)
    problem.dy = problem.dy * clear  # where two filters match equally well to rounding, either may take the gradient

    expected, expected_positions, expected_grads = problem.run("reference", torch.float64)
    y, positions, grads = problem.run(algorithm)
    assert y.dtype == problem.x.dtype
    assert y.shape == expected.shape
    assert positions.dtype == torch.int64
    if y.numel():
        bias = 0.0 if problem.bias is None else problem.bias.abs().max().item()
        assert (y - expected).abs().max().item() <= limit + tolerance * bias
        assert torch.equal(positions[clear], expected_positions[clear])
        assert positions.min() >= 0
        assert positions.max() < responses.shape[2]
    assert len(grads) == len(expected_grads)
    for leaf, grad, want in zip(problem.leaves(), grads, expected_grads, strict=True):
        assert grad.dtype == problem.x.dtype
        assert grad.shape == leaf.shape
        size = max(1.0, want.abs().max().item() if want.numel() else 0.0)
        assert (grad - want).abs().max().item() <= 20 * tolerance * size if grad.numel() else True
