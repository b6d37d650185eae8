"""`fuse_`: convolution + max-pooling of a user's network in one layer each, computing exactly what it did."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Self, overload

import torch
from torch import Tensor, nn

from epitomic.layers import MaxPoolConv1d, MaxPoolConv2d, WinogradConv2d
from epitomic.layers.max_pool import MaxPooled
from epitomic.surgery.chains import Chain, FilterFn, find_chains, kind_of, swap_modules, why_not_swappable

Explanation = tuple[str, bool, str]
"""Name of a convolution, whether it was replaced, and why (not)."""


class FusedAway(nn.Identity):
    """Stands where a layer was that is now part of a fused one. `unfuse_` puts ``original`` back."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "original", original)  # kept aside: no submodule, so not in the state dict

    original: nn.Module


class Folded(MaxPooled):
    """A fused layer whose filters contain a batch normalisation. It serves evaluation only."""

    def train(self, mode: bool = True) -> Self:
        """Refuses training, because the batch normalisation could no longer follow its batches."""
        if mode:
            raise RuntimeError(
                "this layer contains a folded batch normalisation and cannot be trained: call epitomic.unfuse_(model) "
                "first"
            )
        return super().train(mode)


class FoldedMaxPoolConv2d(Folded, MaxPoolConv2d):
    """A folded layer over images."""


class FoldedMaxPoolConv1d(Folded, MaxPoolConv1d):
    """A folded layer over sequences."""


@overload
def fuse_(
    model: nn.Module, *, plain: bool = False, filter_fn: FilterFn | None = None, explain: Literal[False] = False
) -> list[str]: ...


@overload
def fuse_(
    model: nn.Module, *, plain: bool = False, filter_fn: FilterFn | None = None, explain: Literal[True]
) -> list[Explanation]: ...


def fuse_(
    model: nn.Module, *, plain: bool = False, filter_fn: FilterFn | None = None, explain: bool = False
) -> list[str] | list[Explanation]:
    """Replaces each convolution and the max-pooling after it by one fast layer, in place.

    A batch normalisation and an activation may stand between the two. The network computes the same function as before,
    and its weights are the same parameters. A chain is replaced only if this holds exactly: the activation must be one
    that never decreases (ReLU, LeakyReLU, Sigmoid, ...), and a batch normalisation is folded into the filters in eval
    mode only. Everything else is left alone; ``explain=True`` says why.

    Args:
        model: The network. It must be traceable by torch.fx.
        plain: Whether to turn convolutions without pooling into `WinogradConv2d` as well, which computes the same to
            rounding. Those of stride 1 with filters larger than a pixel are taken.
        filter_fn: Called with a convolution and its name; False leaves that convolution alone.
        explain: Return a line for every convolution instead of the names of those replaced.

    Returns:
        Names of the replaced convolutions; with ``explain``, (name, replaced, reason) for every convolution.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2))
        >>> fuse_(model)
        ['0']
        >>> model(torch.randn(1, 3, 12, 12)).shape
        torch.Size([1, 8, 5, 5])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    found = find_chains(model, filter_fn)
    replacements: dict[nn.Module, nn.Module] = {}
    lines: dict[str, Explanation] = {}
    for finding in found:
        if finding.chain is None:
            lines[finding.name] = (finding.name, False, finding.reason)
        else:
            replacements |= _fuse_chain(finding.chain)
            between = " and its batch normalisation" if finding.chain.norm is not None else ""
            lines[finding.name] = (finding.name, True, f"fused with its max-pooling{between}")
    if plain:
        for name, module in model.named_modules():
            if module not in replacements and kind_of(module) is nn.Conv2d:
                reason = _why_not_plain(module, name, filter_fn)
                if reason is None:
                    replacements[module] = _plain(module)
                    lines[name] = (name, True, "is a WinogradConv2d now")
                elif not lines[name][1]:
                    lines[name] = (name, False, f"{lines[name][2]}; as a plain layer: {reason}")
    if not replacements:
        warnings.warn(
            f"nothing was fused: {_why_nothing(lines)}; fuse_(model, explain=True) has the reasons", stacklevel=2
        )
    swap_modules(model, replacements)
    return list(lines.values()) if explain else [name for name, replaced, _ in lines.values() if replaced]


def unfuse_(model: nn.Module) -> list[str]:
    """Undoes `fuse_` in place: the original layers come back, with the weights as they are now.

    A batch normalisation that was folded comes back as it was, and so do the filters before it.

    Returns:
        Names of the convolutions that came back.
    """
    replacements: dict[nn.Module, nn.Module] = {}
    names = []
    for name, module in model.named_modules():
        if isinstance(module, FusedAway):
            replacements[module] = module.original
        original: Any = vars(module).get("fused_from")
        if original is None:
            continue
        if not isinstance(module, Folded):
            original.weight, original.bias = module.weight, module.bias
        original.train(module.training)
        replacements[module] = original
        names.append(name)
    swap_modules(model, replacements)
    return names


def _fuse_chain(chain: Chain) -> dict[nn.Module, nn.Module]:
    """The modules of one chain and what replaces them."""
    conv, norm, pool = chain.conv, chain.norm, chain.pool
    kind: Any = MaxPoolConv2d if isinstance(conv, nn.Conv2d) else MaxPoolConv1d
    if norm is not None:
        kind = FoldedMaxPoolConv2d if isinstance(conv, nn.Conv2d) else FoldedMaxPoolConv1d
    parameters: tuple[nn.Parameter, nn.Parameter | None] = conv.weight, conv.bias  # type: ignore[assignment]
    if norm is not None:
        weight, bias = folded(conv, norm)
        parameters = nn.Parameter(weight, requires_grad=False), nn.Parameter(bias, requires_grad=False)
    layer = kind(
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size,
        pool_size=pool.kernel_size,
        pool_stride=pool.stride,
        pool_padding=pool.padding,
        stride=conv.stride,
        padding=conv.padding,
        groups=conv.groups,
        ceil_mode=pool.ceil_mode,
        bias=parameters[1] is not None,
        padding_mode=conv.padding_mode,
        device="meta",
    )
    layer.weight, layer.bias = parameters
    keep_aside(layer, conv)
    layer.train(conv.training)
    replaced: dict[nn.Module, nn.Module] = {conv: layer, pool: FusedAway(pool)}
    return replaced if norm is None else {**replaced, norm: FusedAway(norm)}


def _why_not_plain(conv: Any, name: str, filter_fn: FilterFn | None) -> str | None:
    """Why a convolution does not become a `WinogradConv2d`, or None if it does."""
    if set(conv.stride) != {1} or set(conv.dilation) != {1}:
        return "its stride or dilation is not 1"
    if set(conv.kernel_size) == {1}:
        return "its filters have one pixel"
    if filter_fn is not None and not filter_fn(conv, name):
        return "filter_fn leaves it out"
    return why_not_swappable(conv)


def _plain(conv: Any) -> nn.Module:
    """The same convolution as a `WinogradConv2d`, with the same parameters."""
    layer = WinogradConv2d(
        *(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups),
        bias=conv.bias is not None,
        padding_mode=conv.padding_mode,
        device="meta",
    )
    layer.weight, layer.bias = conv.weight, conv.bias
    keep_aside(layer, conv)
    layer.train(conv.training)
    return layer


def keep_aside(layer: nn.Module, original: nn.Module) -> None:
    """Remembers what a layer was made of, outside its submodules and its state dict."""
    object.__setattr__(layer, "fused_from", original)


@torch.no_grad()
def folded(conv: Any, norm: Any) -> tuple[Tensor, Tensor]:
    """Filters and biases of a convolution with the batch normalisation after it; exact for any sign of its scale."""
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight
    bias = -norm.running_mean if conv.bias is None else conv.bias - norm.running_mean
    bias = bias * scale if norm.bias is None else bias * scale + norm.bias
    shape = (-1, *(1,) * (conv.weight.dim() - 1))
    return (conv.weight * scale.reshape(shape)).to(conv.weight.dtype), bias.to(conv.weight.dtype)


def _why_nothing(lines: dict[str, Explanation]) -> str:
    if not lines:
        return "the network has no convolution"
    reasons = {reason for _, _, reason in lines.values()}
    return reasons.pop() if len(reasons) == 1 else f"none of its {len(lines)} convolutions can be"
