"""`for_export`: a copy of a network whose epitomic layers are made of torch's own operators, each in its fastest form.

A layer has three forms:

- ``"one_convolution"``: one convolution with D*D outputs per epitome, and their maximum;
- ``"convolutions"``: D*D convolutions, and their maximum (what a plain export gives);
- ``"winograd"``: matrix products with the transformed epitomes (`ops.winograd` has the algorithm).

All weights are constants of the form: nothing is computed of them when the exported network runs.
"""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epitomic.geometry import Geometry
from epitomic.layers import EpitomicConv1d, EpitomicConv2d
from epitomic.ops.reductions import contrast_gain, mini_epitomes, space_to_depth
from epitomic.ops.transforms import MAX_POINTS, plane_transforms
from epitomic.surgery.chains import swap_modules

FORMS = ("auto", "one_convolution", "convolutions", "winograd")
# Saved work from which "winograd" is the fastest form in ONNX Runtime (measured by benchmarks/export_forms.py).
WORTHWHILE = 400


def for_export(model: nn.Module, form: str = "auto") -> nn.Module:
    """Returns a copy of a network that exports to fast code, ready for evaluation.

    Its epitomic layers are made of torch's own operators. Everything else of the network stays as it is. Export the
    copy by ``torch.onnx.export``, ``torch.export`` or ``torch.jit.trace``. Batch, height and width may be dynamic.

    Args:
        model: The network, or one epitomic layer.
        form: ``"one_convolution"``, ``"convolutions"`` or ``"winograd"`` for all layers that have it, or ``"auto"``:
            for each layer the one that ONNX Runtime runs fastest, by a measured rule (docs/performance.md). A layer
            that has no Winograd form becomes one convolution. Choose a convolution form to quantise the network.

    Example:
        >>> layer, x = EpitomicConv2d(3, 8, 3), torch.randn(1, 3, 10, 10)
        >>> torch.allclose(for_export(layer)(x), layer(x), atol=1e-5)
        True
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    copied = copy.deepcopy(model).eval()
    if isinstance(copied, EpitomicConv1d | EpitomicConv2d):
        return _in_form(copied, form)
    found = [m for m in copied.modules() if isinstance(m, EpitomicConv1d | EpitomicConv2d)]
    swap_modules(copied, {layer: _in_form(layer, form) for layer in found})
    return copied.eval()


def export_form(layer: EpitomicConv1d | EpitomicConv2d) -> str:
    """Returns the form that ``"auto"`` means for a layer: ``"winograd"`` if it saves enough, or one convolution.

    It saves enough if D C e^2 (s - 1) >= `WORTHWHILE`, where s is the factor of multiplications saved. The more
    channels, the smaller the share of the transforms.
    """
    geometry = layer.geometry
    if why_not_winograd(geometry):
        return "one_convolution"
    window, blocks = math.sqrt(math.prod(geometry.pool)), math.prod(geometry.epitome_stride)
    worth = window * layer.in_channels / layer.groups * blocks * (geometry.saved - 1)
    return "winograd" if worth >= WORTHWHILE else "one_convolution"


def why_not_winograd(geometry: Geometry) -> str | None:
    """Returns why a layer of these sizes has no Winograd form, or None if it has one."""
    if max(geometry.points) > MAX_POINTS:
        return f"it would take {geometry.points} points, more than {MAX_POINTS}"
    for name, sizes in (("kernel_size", geometry.kernel), ("stride", geometry.stride)):
        if any(size % e for size, e in zip(sizes, geometry.epitome_stride, strict=True)):
            return f"its epitome_stride {geometry.epitome_stride} does not divide {name} {sizes}"
    return None


def _in_form(layer: EpitomicConv1d | EpitomicConv2d, form: str) -> nn.Module:
    if form == "auto":
        form = export_form(layer)
    elif form == "winograd" and why_not_winograd(layer.geometry):
        form = "one_convolution"
    kinds = {"one_convolution": OneConvolution, "convolutions": Convolutions, "winograd": WinogradProducts}
    with torch.no_grad():
        exported: nn.Module = kinds[form](layer)
    return exported.requires_grad_(False).eval()


class Exported(nn.Module):
    """A layer in a form for export. It holds constants and sizes, and not the layer itself."""

    def __init__(self, layer: EpitomicConv1d | EpitomicConv2d) -> None:
        super().__init__()
        self.dims = layer.dims
        self.mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        left, right, top, bottom = layer.around
        even = self.mode == "constant" and (left, top) == (right, bottom)
        self.padding = (top, left) if even else (0, 0)  # what a convolution does itself
        self.around = (0, 0, 0, 0) if even else (left, right, top, bottom)
        self.stride = layer.geometry.stride
        self.groups = layer.groups
        self.train(layer.training)

    def forward(self, input: Tensor) -> Tensor:
        """Returns the responses of the best matches, (N, out_channels, oh, ow), or (N, out_channels, ol)."""
        x = input if self.dims == 2 else input.unsqueeze(-2)
        if any(self.around):
            x = F.pad(x, self.around, mode=self.mode)
        y = self.responses(x)
        return y if self.dims == 2 else y.squeeze(-2)

    def responses(self, x: Tensor) -> Tensor:
        """Returns the responses to padded images."""
        raise NotImplementedError


class OneConvolution(Exported):
    """One convolution whose D*D outputs of each epitome are neighbours, and their maximum."""

    def __init__(self, layer: EpitomicConv1d | EpitomicConv2d) -> None:
        super().__init__(layer)
        filters = _filters(layer)
        self.positions = filters.shape[1]
        bias = None if layer.bias is None else layer.bias.repeat_interleave(self.positions)
        self.conv = _convolution(layer, filters.flatten(0, 1), bias, self.padding)

    def responses(self, x: Tensor) -> Tensor:
        """See `Exported`."""
        return self.conv(x).unflatten(1, (-1, self.positions)).amax(2)


class Convolutions(Exported):
    """D*D convolutions, and their maximum."""

    def __init__(self, layer: EpitomicConv1d | EpitomicConv2d) -> None:
        super().__init__(layer)
        filters = _filters(layer).unbind(1)
        self.convs = nn.ModuleList(_convolution(layer, f, layer.bias, self.padding) for f in filters)

    def responses(self, x: Tensor) -> Tensor:
        """See `Exported`."""
        best: Tensor = self.convs[0](x)
        for conv in self.convs[1:]:
            best = torch.maximum(best, conv(x))
        return best


class WinogradProducts(Exported):
    """Winograd's algorithm as matrix products. All images of the batch share each product.

    With n points, W*W values per filter and P patches of all images:

        X = R patches      n x C P
        M = U X            n x K x P
        Y = A M          D*D x K P, and its maximum
    """

    def __init__(self, layer: EpitomicConv1d | EpitomicConv2d) -> None:
        super().__init__(layer)
        geometry, weight = layer.geometry, _weight(layer)
        minis = mini_epitomes(weight, geometry)
        gain = contrast_gain(minis, geometry, layer.eps) if layer.normalize else None
        self.block = geometry.epitome_stride
        (eh, ew), (sh, sw), (wh, ww) = self.block, geometry.stride, geometry.kernel
        minis = space_to_depth(minis, self.block)
        self.kernel, self.steps = (wh // eh, ww // ew), (sh // eh, sw // ew)
        maps = plane_transforms(self.kernel, (minis.shape[2], minis.shape[3]), torch.float64)
        products = torch.einsum("nv,kcv->nkc", maps.weight, minis.double().flatten(2))
        self.epitomes = nn.Parameter(products.unflatten(1, (self.groups, -1)).to(weight))  # (n, groups, K, C)
        self.patch_map, self.output_map = nn.Parameter(maps.patch.to(weight)), nn.Parameter(maps.output.to(weight))
        positions = maps.output.shape[0]
        self.gain = None if gain is None else nn.Parameter(gain.t().reshape(positions, -1, 1).contiguous())
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone()[:, None])

    def responses(self, x: Tensor) -> Tensor:
        """See `Exported`."""
        (top, left), (sh, sw), (wh, ww) = self.padding, self.steps, self.kernel
        if top or left:
            x = F.pad(x, (left, left, top, top))
        if self.block != (1, 1):
            x = x[:, :, : x.shape[2] // self.block[0] * self.block[0], : x.shape[3] // self.block[1] * self.block[1]]
            groups = x.reshape(-1, x.shape[1] // self.groups, x.shape[2], x.shape[3])  # so that they stay apart
            x = space_to_depth(groups, self.block).unflatten(0, (-1, self.groups)).flatten(1, 2)
        x = x.transpose(0, 1)  # (C, N, H, W)
        rows = [x[:, :, i : i - wh + 1 or None : sh] for i in range(wh)]
        patches = torch.stack([r[:, :, :, j : j - ww + 1 or None : sw] for r in rows for j in range(ww)])
        _, channels, images, oh, ow = patches.shape  # (W*W, C, N, oh, ow)
        if self.gain is not None:
            by_group = patches.unflatten(1, (self.groups, -1))
            patches = (by_group - by_group.mean((0, 2), keepdim=True)).flatten(1, 2)
        count = images * oh * ow
        transformed = self.patch_map @ patches.reshape(wh * ww, channels * count)
        products = self.epitomes @ transformed.reshape(-1, self.groups, channels // self.groups, count)
        y = self.output_map @ products.reshape(products.shape[0], -1)  # (D*D, K*P)
        if self.gain is not None:
            y = (y.reshape(y.shape[0], -1, count) * self.gain).amax(0)
        else:
            y = y.amax(0).reshape(-1, count)
        if self.bias is not None:
            y = y + self.bias
        return y.reshape(-1, images, oh, ow).transpose(0, 1)


def _filters(layer: EpitomicConv1d | EpitomicConv2d) -> Tensor:
    """Returns the filters as those of images, (K, D*D, C / groups, W, W)."""
    filters = layer.filters().detach()
    return filters if layer.dims == 2 else filters.unsqueeze(-2)


def _weight(layer: EpitomicConv1d | EpitomicConv2d) -> Tensor:
    """Returns the epitomes as those of images."""
    weight = layer.weight.detach()
    return weight if layer.dims == 2 else weight.unsqueeze(-2)


def _convolution(layer: Any, filters: Tensor, bias: Tensor | None, padding: Any) -> nn.Conv2d:
    kernel, stride = layer.geometry.kernel, layer.geometry.stride
    conv = nn.Conv2d(
        layer.in_channels,
        len(filters),
        kernel,
        stride,
        padding,
        groups=layer.groups,
        bias=bias is not None,
        device=filters.device,
        dtype=filters.dtype,
    )
    conv.weight.copy_(filters)
    if conv.bias is not None:
        conv.bias.copy_(cast(Tensor, bias))
    return conv
