"""Times the algorithms of each layer of a network on a device, and remembers them in the tuning file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epitomic.ops.selection import SELECTION, Decision, recorded
from epitomic.support.console import Progress
from epitomic.support.errors import UserError


@dataclass(frozen=True)
class Tuned:
    """What was found for one layer.

    Attributes:
        name: Name of the layer in the network.
        decision: The rule's algorithm, the fastest one, and the milliseconds of all candidates.
    """

    name: str
    decision: Decision

    @property
    def gain(self) -> float | None:
        """The time of the rule's algorithm over that of the fastest, or None if it has no time."""
        times = self.decision.milliseconds
        rule, best = times.get(self.decision.rule), times.get(self.decision.algorithm)
        return rule / best if rule is not None and best else None


def tunable(model: nn.Module) -> dict[str, nn.Module]:
    """Returns the layers that choose their algorithm, by name."""
    return {name: module for name, module in model.named_modules() if getattr(module, "algorithm", None) == "auto"}


def tune(model: nn.Module, images: Tensor, progress: Progress, *, training: bool, bfloat16: bool) -> list[Tuned]:
    """Runs a network once. Each layer times its algorithms on the input that it gets.

    Layers of equal sizes are timed once, and timings that the tuning file has are not made again.

    Args:
        model: The network, on its device.
        images: A batch of images, (N, C, H, W), on the same device.
        progress: Advances by one for each layer of `tunable`.
        training: Whether to time the gradients as well.
        bfloat16: Whether to compute in bfloat16 by autocast.

    Raises:
        UserError: If the device has too little memory for this batch.
    """
    found: list[Tuned] = []
    current = ""

    def keep(decision: Decision) -> None:
        found.append(Tuned(current, decision))

    def enter(name: str) -> None:
        nonlocal current
        current = name
        SELECTION.made.clear()  # so that a second layer of the same sizes decides, and is reported, too
        progress.update(f"timing {name}")

    layers = tunable(model)
    hooks = [m.register_forward_pre_hook(lambda *_, name=name: enter(name)) for name, m in layers.items()]
    hooks += [m.register_forward_hook(lambda *_: progress.update(current, progress.done + 1)) for m in layers.values()]
    autocast = torch.autocast(images.device.type, torch.bfloat16) if bfloat16 else contextlib.nullcontext()
    try:
        with recorded({}, benchmark=True), _listening(keep), torch.set_grad_enabled(training), autocast:
            model.train(training)(images)
    except torch.OutOfMemoryError:
        raise UserError(
            f"{images.device} has too little memory for a batch of {len(images)} images: try a smaller --batch-size"
        ) from None
    finally:
        for hook in hooks:
            hook.remove()
    return found


@contextlib.contextmanager
def _listening(listener: object) -> Iterator[None]:
    before = SELECTION.listener
    SELECTION.listener = listener  # type: ignore[assignment]
    try:
        yield
    finally:
        SELECTION.listener = before
