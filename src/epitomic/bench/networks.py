"""The contest of whole networks: a training step (forward, loss, backward, SGD) of ours and of its twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from epitomic.bench.cases import FORMATS
from epitomic.bench.timing import Sample, interleaved
from epitomic.layers import MaxPoolConv2d, WinogradConv2d
from epitomic.models import create_model
from epitomic.support.console import Progress
from epitomic.support.devices import CPU

TORCH = "@torch"  # after a network's name: with torch's own layers in place of our fused and plain ones


@dataclass(frozen=True)
class NetworkPair:
    """Two networks on the same input: ``batch`` images of ``channels`` channels and ``size`` pixels a side."""

    ours: str
    twin: str
    channels: int
    size: int
    batch: int
    classes: int

    def text(self) -> str:
        """Returns the input in one line."""
        return f"{self.channels} x {self.size} px, batch {self.batch}"


NETWORK_PAIRS = (
    NetworkPair("epitomic", "maxpool@torch", channels=3, size=220, batch=32, classes=1000),
    NetworkPair("maxpool", "maxpool@torch", channels=3, size=220, batch=32, classes=1000),
    NetworkPair("epitomic", "maxpool", channels=3, size=220, batch=32, classes=1000),
    NetworkPair("epitomic_norm", "maxpool_norm", channels=3, size=220, batch=32, classes=1000),
    NetworkPair("epitomic_small", "maxpool_small", channels=1, size=28, batch=128, classes=10),
    NetworkPair("epitomic_small", "maxpool_small", channels=3, size=32, batch=128, classes=10),
    NetworkPair("epitomic_small", "maxout_small", channels=3, size=32, batch=128, classes=10),
    NetworkPair("maxpool_small", "maxpool_small@torch", channels=3, size=32, batch=128, classes=10),
    NetworkPair("epitomic_fast", "maxpool_fast", channels=3, size=32, batch=128, classes=10),
    NetworkPair("maxpool_fast", "maxpool_fast@torch", channels=3, size=32, batch=128, classes=10),
)


@dataclass(frozen=True)
class NetworkResult:
    """Timings of a training step of two networks, each in its faster memory format."""

    pair: NetworkPair
    milliseconds: Sample  # our times
    format: str  # our memory format
    twin_milliseconds: Sample  # the twin's times
    twin_format: str  # the twin's memory format
    share: Sample  # our time over the twin's, within each repetition


def run_networks(
    pairs: Sequence[NetworkPair], *, repetitions: int, progress: Progress, device: torch.device = CPU
) -> list[NetworkResult]:
    """Times both networks of each pair on a device in both memory formats, all interleaved."""
    return [_run_pair(pair, repetitions, progress, device) for pair in pairs]


def _run_pair(pair: NetworkPair, repetitions: int, progress: Progress, device: torch.device) -> NetworkResult:
    title = f"{pair.ours} against {pair.twin}"

    def tell(done: int) -> None:
        progress.update(f"{title}: repetition {done} of {repetitions}", progress.done + 1)

    progress.update(f"{title}: warming up")
    steps = {(name, f): _step(name, f, pair, device) for name in (pair.ours, pair.twin) for f in FORMATS}
    times = interleaved(steps, repetitions, tell, device)
    ours, twin = (min(FORMATS, key=lambda f: times[name, f].median) for name in (pair.ours, pair.twin))
    a, b = times[pair.ours, ours], times[pair.twin, twin]
    return NetworkResult(pair, a * 1e3, ours, b * 1e3, twin, a / b)


def _step(name: str, layout: str, pair: NetworkPair, device: torch.device) -> Callable[[], None]:
    torch.manual_seed(0)
    base = name.removesuffix(TORCH)
    model = create_model(base, num_classes=pair.classes, in_channels=pair.channels, image_size=pair.size).train()
    if name != base:
        for module in model.modules():
            if isinstance(module, MaxPoolConv2d | WinogradConv2d):
                module.algorithm = "direct"  # torch's own calls
    model = model.to(device, memory_format=FORMATS[layout])  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    images = torch.randn(pair.batch, pair.channels, pair.size, pair.size, device=device)
    images = images.to(memory_format=FORMATS[layout])  # `contiguous` would not change the strides of one channel
    labels = torch.randint(pair.classes, (pair.batch,), device=device)

    def step() -> None:
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
