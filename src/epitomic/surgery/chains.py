"""Finds convolution [-> batch norm] [-> increasing activation] -> max-pooling in any network that torch.fx can trace.

torch.fx only finds the chains. The network itself is changed by swapping modules (`fusion.py`, `conversion.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.nn.utils import parametrize

from epitomic.support.errors import first_line

# Activations that never decrease: the largest response is also the largest after them.
INCREASING_MODULES = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU),
    *(nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Hardtanh, nn.Hardsigmoid),
)
INCREASING_FUNCTIONS: frozenset[Any] = frozenset(
    (
        *(F.relu, F.relu6, F.leaky_relu, F.elu, F.celu, F.selu, F.sigmoid, F.tanh, F.softplus, F.hardtanh),
        *(F.hardsigmoid, F.relu_, F.elu_, F.celu_, F.selu_, F.leaky_relu_, F.hardtanh_),
        *(torch.relu, torch.relu_, torch.sigmoid, torch.tanh, torch.selu, torch.celu),
    )
)
INCREASING_METHODS = frozenset(("relu", "relu_", "sigmoid", "sigmoid_", "tanh", "tanh_"))
FUNCTIONAL_POOLS: frozenset[Any] = frozenset((F.max_pool2d, torch.max_pool2d, F.max_pool1d, torch.max_pool1d))
FOLLOWERS: dict[type, tuple[Any, Any]] = {  # convolution -> the batch normalisation and max-pooling of its kind
    nn.Conv2d: (nn.BatchNorm2d, nn.MaxPool2d),
    nn.Conv1d: (nn.BatchNorm1d, nn.MaxPool1d),
}

FilterFn = Callable[[nn.Module, str], bool]


@dataclass(frozen=True)
class Chain:
    """One convolution and the max-pooling that follows it.

    Attributes:
        name: Name of the convolution in the network.
        conv: The convolution.
        norm: The batch normalisation between the two, or None.
        pool: The max-pooling.
    """

    name: str
    conv: nn.Conv1d | nn.Conv2d
    norm: nn.BatchNorm1d | nn.BatchNorm2d | None
    pool: nn.MaxPool1d | nn.MaxPool2d


@dataclass(frozen=True)
class Finding:
    """What was found at one convolution: a chain, or the reason why there is none."""

    name: str
    chain: Chain | None
    reason: str


class _Refusal(Exception):  # noqa: N818
    """The reason why a convolution is left alone."""


def find_chains(model: nn.Module, filter_fn: FilterFn | None = None) -> list[Finding]:
    """Looks at every convolution of a network, in the order in which the network calls them.

    Args:
        model: The network. It is not changed.
        filter_fn: Called with a convolution and its name; False leaves that convolution alone.
    """
    convs = {name: module for name, module in model.named_modules() if kind_of(module) in FOLLOWERS}
    try:
        graph = _Tracer().trace(model)
    except Exception as error:  # a forward that branches on values can fail in any way
        reason = f"torch.fx cannot trace the network ({first_line(error)}); try fuse_ on a part of it"
        return [Finding(name, None, reason) for name in convs]
    modules = dict(model.named_modules())
    found = [_examine(node, modules, filter_fn) for node in graph.nodes if _calls_convolution(node, modules)]
    found = _drop_shared(found, graph, modules)
    unused = [Finding(n, None, "the network never calls it") for n in convs if n not in {f.name for f in found}]
    return _one_per_name([*found, *unused])


def why_not_swappable(module: nn.Module) -> str | None:
    """Why a module cannot be replaced without losing something that a user attached to it, or None."""
    if parametrize.is_parametrized(module):
        return "it has parametrizations"
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")
    if any(getattr(module, name, None) for name in hooks):
        return "it has hooks"
    return None


def swap_modules(model: nn.Module, replacements: dict[nn.Module, nn.Module]) -> None:
    """Puts each replacement wherever its original is registered, under every name."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and child in replacements:
                parent._modules[name] = replacements[child]


class _Tracer(fx.Tracer):
    """Traces through every module that is not torch's own or this package's."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        ours = m.__module__.startswith("epitomic.layers")
        return ours or super().is_leaf_module(m, module_qualified_name)


def _calls_convolution(node: fx.Node, modules: dict[str, nn.Module]) -> bool:
    return node.op == "call_module" and kind_of(modules[str(node.target)]) in FOLLOWERS


def kind_of(module: nn.Module) -> type:
    """The exact class of a module; parametrizations, which change it, are looked through."""
    return parametrize.type_before_parametrizations(module)


def _examine(node: fx.Node, modules: dict[str, nn.Module], filter_fn: FilterFn | None) -> Finding:
    name = str(node.target)
    conv: Any = modules[name]
    try:
        _check(conv, "the convolution")
        if any(size != 1 for size in conv.dilation):
            raise _Refusal(f"its dilation is {conv.dilation}, and only 1 is served")
        chain = _follow(node, name, conv, modules)
        if filter_fn is not None and not filter_fn(conv, name):
            raise _Refusal("filter_fn leaves it out")
        return Finding(name, chain, "")
    except _Refusal as refusal:
        return Finding(name, None, str(refusal))


def _follow(node: fx.Node, name: str, conv: Any, modules: dict[str, nn.Module]) -> Chain:
    """Walks from a convolution to the max-pooling after it, or says what stands in the way."""
    norm: Any = None
    activated = False
    norms, pools = FOLLOWERS[kind_of(conv)]
    while True:
        node = _only_user(node)
        module: Any = modules.get(str(node.target)) if node.op == "call_module" else None
        if type(module) is pools:
            _check_pool(module)
            return Chain(name, conv, norm, module)
        if type(module) is norms and norm is None and not activated:
            _check_norm(module, conv)
            norm = module
        elif not activated and _is_increasing(node, module):
            activated = True
        else:
            raise _Refusal(_what_stands_there(node, module))


def _only_user(node: fx.Node) -> fx.Node:
    users = list(node.users)
    if len(users) != 1:
        raise _Refusal("its response is read more than once" if users else "its response is not used")
    if users[0].op == "output":
        raise _Refusal("its response is an output of the network")
    # The response must be the first argument, and the only place where it is read.
    if users[0].args[:1] != (node,) or list(users[0].all_input_nodes) != [node]:
        raise _Refusal(_what_stands_there(users[0], None))
    return users[0]


def _is_increasing(node: fx.Node, module: nn.Module | None) -> bool:
    if module is not None:
        if type(module) not in INCREASING_MODULES:
            return False
        _check(module, f"the activation {type(module).__name__}")
        slope = getattr(module, "negative_slope", getattr(module, "alpha", 1.0))
        return bool(slope >= 0)
    if node.op == "call_method":
        return node.target in INCREASING_METHODS
    if node.op == "call_function" and node.target in INCREASING_FUNCTIONS:
        if node.target in (F.hardtanh, F.hardtanh_):  # its further arguments are limits, not slopes
            return True
        slopes = [*node.args[1:2], *(node.kwargs[key] for key in ("negative_slope", "alpha") if key in node.kwargs)]
        return all(isinstance(slope, int | float) and slope >= 0 for slope in slopes)
    return False


def _what_stands_there(node: fx.Node, module: nn.Module | None) -> str:
    if node.op == "call_function" and node.target in FUNCTIONAL_POOLS:
        return "its max-pooling is a function; only nn.MaxPool modules can be swapped"
    if module is not None:
        return f"{type(module).__name__} follows it before any max-pooling"
    name = getattr(node.target, "__name__", str(node.target))
    return "no max-pooling follows it" if node.target is operator.add else f"{name} follows it before any max-pooling"


def _check_pool(pool: Any) -> None:
    _check(pool, "the max-pooling")
    if pool.return_indices:
        raise _Refusal("its max-pooling returns indices")
    if pool.dilation not in (1, (1, 1)):
        raise _Refusal(f"its max-pooling has dilation {pool.dilation}, and only 1 is served")


def _check_norm(norm: Any, conv: nn.Module) -> None:
    _check(norm, "the batch normalisation")
    if norm.training or conv.training:
        raise _Refusal("a batch normalisation stands between; it can be folded in eval mode only: call model.eval()")
    if norm.running_mean is None:
        raise _Refusal("the batch normalisation between keeps no running statistics")


def _check(module: nn.Module, what: str) -> None:
    reason = why_not_swappable(module)
    if reason:
        raise _Refusal(f"{what}: {reason}")


def _drop_shared(found: list[Finding], graph: fx.Graph, modules: dict[str, nn.Module]) -> list[Finding]:
    """Refuses chains that share a module with something that is not fused in the same way."""
    calls: dict[nn.Module, int] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            module = modules[str(node.target)]
            calls[module] = calls.get(module, 0) + 1
        elif node.op == "get_attr":  # a weight that the forward reads directly
            owner = modules.get(str(node.target).rpartition(".")[0])
            if owner is not None:
                calls[owner] = calls.get(owner, 0) + 1
    while True:
        chains = [f.chain for f in found if f.chain]
        refused: dict[Chain, str] = {}
        for chain in chains:
            parts = (("convolution", chain.conv), ("batch normalisation", chain.norm), ("max-pooling", chain.pool))
            for what, part in parts:
                if part is None:
                    continue
                uses = sum(part in (c.conv, c.norm, c.pool) for c in chains)
                if uses < calls.get(part, 0):
                    refused[chain] = f"its {what} is also used where nothing can be fused"
            same = [c for c in chains if c.conv is chain.conv]
            if any(_settings(c.pool) != _settings(chain.pool) or c.norm is not chain.norm for c in same):
                refused[chain] = "it is used twice, with different layers after it"
        if not refused:
            return found
        found = [Finding(f.name, None, refused[f.chain]) if f.chain in refused else f for f in found]


def _settings(pool: Any) -> tuple[Any, ...]:
    return pool.kernel_size, pool.stride, pool.padding, pool.ceil_mode


def _one_per_name(found: list[Finding]) -> list[Finding]:
    """A convolution that is called twice is listed once."""
    return list({finding.name: finding for finding in reversed(found)}.values())[::-1]
