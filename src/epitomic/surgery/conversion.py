"""`convert_`: convolution + max-pooling turned into epitomic layers that start as the same function.

Every convolution + max-pooling is an epitomic layer. Its epitomes hold the filters in their middle, with a border of
zeros as wide as the pooling can shift them. The D x D windows of an epitome are the D x D shifts of its filter.
Training can then change the zeros.
"""

from __future__ import annotations

import warnings
from typing import Literal, overload

from torch import nn

from epitomic.geometry import as_pair
from epitomic.layers import EpitomicConv1d, EpitomicConv2d
from epitomic.ops.transforms import MAX_POINTS
from epitomic.surgery.chains import Chain, FilterFn, find_chains, swap_modules
from epitomic.surgery.fusion import Explanation, folded


@overload
def convert_(
    model: nn.Module,
    *,
    filter_fn: FilterFn | None = None,
    min_channels: int = 16,
    explain: Literal[False] = False,
) -> list[str]: ...


@overload
def convert_(
    model: nn.Module, *, filter_fn: FilterFn | None = None, min_channels: int = 16, explain: Literal[True]
) -> list[Explanation]: ...


def convert_(
    model: nn.Module, *, filter_fn: FilterFn | None = None, min_channels: int = 16, explain: bool = False
) -> list[str] | list[Explanation]:
    """Replaces each convolution and the max-pooling after it by an epitomic layer, in place.

    The network computes what it did and can learn beyond it. Outputs differ only at borders that the max-pooling's own
    padding makes: the pair ignores what lies outside, the epitomic layer sees zeros there. Chains with ``ceil_mode``
    are left alone.

    Args:
        model: The network. It must be traceable by torch.fx.
        filter_fn: Called with a convolution and its name; False leaves that convolution alone. True also takes layers
            that would otherwise be left alone as too large to be fast.
        min_channels: Convolutions with fewer input channels are left alone, unless ``filter_fn`` is given.
        explain: Return (name, replaced, reason) for every convolution instead of the names of those replaced.

    Returns:
        Names of the replaced convolutions, or the explanations.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    replacements: dict[nn.Module, nn.Module] = {}
    lines: list[Explanation] = []
    for finding in find_chains(model, filter_fn):
        reason = finding.reason
        if finding.chain is not None:
            reason = _why_not(finding.chain, min_channels, asked=filter_fn is not None)
        if finding.chain is None or reason:
            lines.append((finding.name, False, reason))
            continue
        replacements |= _convert_chain(finding.chain)
        differs = " (borders differ: the pooling is padded)" if finding.chain.pool.padding not in (0, (0, 0)) else ""
        lines.append((finding.name, True, f"is now an epitomic layer{differs}"))
    if not replacements:
        warnings.warn("nothing was converted; convert_(model, explain=True) has the reasons", stacklevel=2)
    swap_modules(model, replacements)
    return lines if explain else [name for name, replaced, _ in lines if replaced]


def _why_not(chain: Chain, min_channels: int, *, asked: bool) -> str:
    if chain.pool.ceil_mode:
        return "its max-pooling has ceil_mode, whose last windows an epitomic layer does not have"
    if isinstance(chain.conv.padding, str):
        return f"its padding is {chain.conv.padding!r}; only numbers are served"
    if asked:
        return ""
    if chain.conv.in_channels < min_channels:
        return f"it has {chain.conv.in_channels} input channels, fewer than min_channels={min_channels}"
    pool = as_pair("pool_size", chain.pool.kernel_size)
    sizes = zip(chain.conv.kernel_size, pool, chain.conv.stride, strict=False)
    points = max(-(-w // s) + 2 * (d - 1) for w, d, s in sizes)
    if points > MAX_POINTS:
        return f"its epitomes would have {points} points per axis, and more than {MAX_POINTS} are slow"
    return ""


def _convert_chain(chain: Chain) -> dict[nn.Module, nn.Module]:
    conv = chain.conv
    weights = None if chain.norm is None else folded(conv, chain.norm)
    kind = EpitomicConv2d if isinstance(conv, nn.Conv2d) else EpitomicConv1d
    layer = kind.from_conv(conv, chain.pool, weights=weights)
    layer.train(conv.training)
    replaced: dict[nn.Module, nn.Module] = {conv: layer, chain.pool: nn.Identity()}
    return replaced if chain.norm is None else {**replaced, chain.norm: nn.Identity()}
