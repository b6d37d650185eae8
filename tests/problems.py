"""Random layers and inputs for the property tests, and the comparison of an algorithm with the reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from epitomic import epitomic_conv2d, max_pool_conv2d, winograd_conv2d
from epitomic.geometry import Geometry, Pair, PoolGeometry, TileGeometry
from epitomic.ops.choice import choose_tile
from epitomic.ops.filters import gather_filters, normalize_filters

# Rounding of responses and gradients, as a share of the largest sum of absolute products.
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}


@dataclass
class Problem:
    """One call of a public function. ``options`` are its keyword arguments."""

    function: Callable[..., Any]
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    options: dict[str, Any]
    geometry: Any  # Geometry or PoolGeometry
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
        y, positions = self.function(x, weight, bias, **self.options, algorithm=algorithm, return_positions=True)
        grads = list(torch.autograd.grad(y, wanted, self.dy.to(dtype))) if wanted else []
        return y.detach(), positions, grads

    def responses(self) -> tuple[Tensor, float]:
        """Returns the responses without bias in float64, (N, K, D*D, oh, ow), and the largest sum of absolute terms.

        A position that a pooling window leaves out is -inf.
        """
        epitomes = isinstance(self.geometry, Geometry)
        respond = self._epitome_responses if epitomes else self._filter_responses
        filters = gather_filters(self.weight.double(), self.geometry) if epitomes else self.weight.double()
        if self.options.get("normalize"):
            filters = normalize_filters(filters, self.options["eps"])
        absolute = respond(self.x.double().abs(), filters.abs()).clamp(min=0)
        return respond(self.x.double(), filters), absolute.max().item() if absolute.numel() else 0.0

    def _epitome_responses(self, x: Tensor, filters: Tensor) -> Tensor:
        g, groups = self.geometry, self.options["groups"]
        parts = []
        for channels, own in zip(x.chunk(groups, 1), filters.chunk(groups), strict=True):
            patches = F.unfold(channels, g.kernel, padding=g.padding, stride=g.stride)  # (N, C*W*W, L)
            parts.append(torch.einsum("kpf,nfl->nkpl", own.flatten(2), patches))
        return torch.cat(parts, 1).unflatten(3, self.dy.shape[2:])

    def _filter_responses(self, x: Tensor, filters: Tensor) -> Tensor:
        g, groups = self.geometry, self.options["groups"]
        if isinstance(g, TileGeometry):
            return F.conv2d(x, filters, padding=g.padding, groups=groups).unsqueeze(2)
        responses = F.conv2d(x, filters, None, g.stride, g.padding, groups=groups)
        (above, left), (dh, dw), (sh, sw), (oh, ow) = g.pool_padding, g.pool, g.pool_stride, self.dy.shape[2:]
        responses = F.pad(responses, (left, sw + dw, above, sh + dh), value=-math.inf)
        windows = responses.unfold(2, dh, sh).unfold(3, dw, sw)[:, :, :oh, :ow]  # (N, K, oh, ow, D, D)
        return windows.flatten(4).permute(0, 1, 4, 2, 3)


def _pair(draw: st.DrawFn, low: int, high: int) -> Pair:
    return draw(st.integers(low, high)), draw(st.integers(low, high))


def _image(draw: st.DrawFn, kernel: Pair, padding: Pair, stride: Pair = (1, 1)) -> Pair:
    """Draws the height and width of an image that holds at least one patch."""
    sizes = [max(1, w - 2 * p) + s * draw(st.integers(0, 9)) for w, p, s in zip(kernel, padding, stride, strict=True)]
    return sizes[0], sizes[1]


def _problem(
    draw: st.DrawFn,
    function: Callable[..., Any],
    size: Pair,
    weight: Pair,
    outputs: int,
    options: dict[str, Any],
    geometry: Any,
    output: Pair,
) -> Problem:
    """Draws the tensors of a call in any layout. ``outputs`` is the number of output channels per weight."""
    groups = draw(st.sampled_from([1, 1, 2]))
    n, c, k = draw(st.integers(0, 3)), groups * draw(st.integers(1, 9)), groups * draw(st.integers(1, 9))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    torch.manual_seed(draw(st.integers(0, 2**31)))
    wants = draw(st.sampled_from([(True, True, True)] * 3 + [(True, False, False), (False, True, False), (False,) * 3]))
    return Problem(
        function=function,
        x=_in_layout(draw(st.sampled_from(LAYOUTS)), n, c, *size, dtype),
        weight=_in_layout(draw(st.sampled_from(LAYOUTS)), k, c // groups, *weight, dtype)
        + draw(st.sampled_from([0.0, 0.0, 3.0])),
        bias=torch.randn(k * outputs, dtype=dtype) if draw(st.booleans()) else None,
        options=options | {"groups": groups},
        geometry=geometry,
        wants=wants,
        dy=_in_layout(draw(st.sampled_from(LAYOUTS)), n, k * outputs, *output, dtype),
    )


@st.composite
def problems(draw: st.DrawFn, *, max_points: int = 9) -> Problem:
    """Draws any epitomic layer: any filter, window and stride, mini or topographic, and any layout of the input."""
    kernel, pool = _pair(draw, 1, 6), _pair(draw, 1, 4)
    step = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 2), (3, 2)]))
    if max(-(-w // e) + d - 1 for w, d, e in zip(kernel, pool, step, strict=True)) > max_points:
        pool = (1 + pool[0] % 2, 1 + pool[1] % 2)
    stride = draw(st.one_of(st.none(), st.builds(_pair, st.just(draw), st.just(1), st.just(4))))
    mini = tuple(w + (d - 1) * e for w, d, e in zip(kernel, pool, step, strict=True))
    more = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (3, 4)]))  # beyond the mini-epitome: topographic
    options: dict[str, Any] = {
        "kernel_size": kernel,
        "pool_size": pool,
        "stride": stride,
        "padding": _pair(draw, 0, 2),
        "epitome_stride": step,
    }
    geometry = Geometry.create(**options, epitome_size=(mini[0] + more[0], mini[1] + more[1]))
    size, outputs = _image(draw, kernel, geometry.padding), geometry.outputs[0] * geometry.outputs[1]
    options |= {"normalize": draw(st.booleans()), "eps": 0.01}
    output = geometry.output_size(*size)
    return _problem(draw, epitomic_conv2d, size, geometry.epitome, outputs, options, geometry, output)


@st.composite
def pool_problems(draw: st.DrawFn, *, max_points: int = 9) -> Problem:
    """Draws any max-pooled convolution: windows may overlap or hang over the border, and have any step."""
    kernel, pool = _pair(draw, 1, 6), _pair(draw, 1, 4)
    stride = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 2), (3, 2)]))
    if max(-(-w // s) + d - 1 for w, d, s in zip(kernel, pool, stride, strict=True)) > max_points:
        pool = (1 + pool[0] % 2, 1 + pool[1] % 2)
    options: dict[str, Any] = {
        "pool_size": pool,
        "pool_stride": draw(st.one_of(st.none(), st.builds(_pair, st.just(draw), st.just(1), st.just(4)))),
        "pool_padding": (draw(st.integers(0, pool[0] // 2)), draw(st.integers(0, pool[1] // 2))),
        "stride": stride,
        "padding": _pair(draw, 0, 2),
        "ceil_mode": draw(st.booleans()),
    }
    geometry = PoolGeometry.create(**options, kernel_size=kernel)
    seen = [(d - 1) * s + w for d, s, w in zip(pool, stride, kernel, strict=True)]  # what one window sees
    size = _image(draw, (seen[0], seen[1]), geometry.padding, stride)
    options |= {"normalize": draw(st.booleans()), "eps": 0.01}
    return _problem(draw, max_pool_conv2d, size, kernel, 1, options, geometry, geometry.output_size(*size))


@st.composite
def plain_problems(draw: st.DrawFn) -> Problem:
    """Draws any plain convolution of step 1. Its positions are zeros, and its reference is ``conv2d``."""
    kernel, padding = _pair(draw, 1, 6), _pair(draw, 0, 2)
    size = _image(draw, kernel, padding)
    geometry = choose_tile(kernel, padding, *size)
    return _problem(draw, _plain, size, kernel, 1, {"padding": padding}, geometry, geometry.responses)


def _plain(*tensors: Any, algorithm: str, return_positions: bool, **options: Any) -> tuple[Tensor, Tensor]:
    y = winograd_conv2d(*tensors, **options, algorithm="direct" if algorithm == "reference" else algorithm)
    return y, torch.zeros_like(y, dtype=torch.int64)


LAYOUTS = ("contiguous", "channels_last", "strided", "expanded")


def _in_layout(layout: str, n: int, c: int, h: int, w: int, dtype: torch.dtype) -> Tensor:
    if layout == "strided":
        return torch.randn(n, 2 * c, w, h + 1, dtype=dtype)[:, ::2, :, 1:].transpose(2, 3)
    if layout == "expanded":
        return torch.randn(1, c, h, w, dtype=dtype).expand(n, c, h, w)
    x = torch.randn(n, c, h, w, dtype=dtype)
    return x.contiguous(memory_format=torch.channels_last) if layout == "channels_last" else x


def assert_same(problem: Problem, *algorithms: str) -> None:
    """Runs algorithms against `reference` in float64: outputs, positions and gradients where the winner is clear."""
    tolerance = TOLERANCE[problem.x.dtype]
    responses, scale = problem.responses()
    limit = tolerance * max(scale, 1e-30)
    top = responses.topk(min(2, responses.shape[2]), dim=2).values
    clear = (top[:, :, 0] - top[:, :, -1] > 2 * limit) | (responses.shape[2] == 1)  # -inf is far from all
    problem.dy = problem.dy * clear  # where two filters match equally well to rounding, either may take the gradient

    expected, expected_positions, expected_grads = problem.run("reference", torch.float64)
    for algorithm in algorithms:
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
