"""Whole networks: a training step (forward, loss, backward, SGD) of an epitomic network and of its twin."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from epitomic.bench.contest import FORMATS
from epitomic.bench.run import Progress
from epitomic.bench.timing import Sample, interleaved
from epitomic.models import create_model


@dataclass(frozen=True)
class Match:
    """Two networks on the same input."""

    ours: str
    twin: str
    channels: int
    size: int
    batch: int
    classes: int

    def text(self) -> str:
        """The input in a line."""
        return f"{self.channels} x {self.size} px, batch {self.batch}"


MATCHES = (
    Match("epitomic", "maxpool", channels=3, size=220, batch=32, classes=1000),
    Match("epitomic_norm", "maxpool_norm", channels=3, size=220, batch=32, classes=1000),
    Match("epitomic_small", "maxpool_small", channels=1, size=28, batch=128, classes=10),
    Match("epitomic_small", "maxpool_small", channels=3, size=32, batch=128, classes=10),
    Match("epitomic_small", "maxout_small", channels=3, size=32, batch=128, classes=10),
    Match("epitomic_fast", "maxpool_fast", channels=3, size=32, batch=128, classes=10),
)


@dataclass(frozen=True)
class Result:
    """Milliseconds a step of both, each in its faster memory format, and their ratio within each repetition."""

    match: Match
    milliseconds: Sample
    format: str
    twin_milliseconds: Sample
    twin_format: str
    share: Sample  # our time over the twin's


def run_networks(matches: Sequence[Match], *, repetitions: int, progress: Progress) -> list[Result]:
    """Times every match, all its contestants interleaved."""
    results = []
    for match in matches:
        progress.say(f"{match.ours} against {match.twin}: warming up")
        steps = {(name, f): _step(name, f, match) for name in (match.ours, match.twin) for f in FORMATS}
        times: dict[tuple[str, str], Sample] = {}
        for done, known in enumerate(interleaved(steps, repetitions), 1):
            times = known
            progress.say(f"{match.ours} against {match.twin}: repetition {done} of {repetitions}")
        ours, twin = (min(FORMATS, key=lambda f: times[name, f].median) for name in (match.ours, match.twin))
        a, b = times[match.ours, ours], times[match.twin, twin]
        results.append(Result(match, a * 1e3, ours, b * 1e3, twin, a / b))
    return results


def _step(name: str, layout: str, match: Match) -> Callable[[], None]:
    torch.manual_seed(0)
    model = create_model(name, num_classes=match.classes, in_channels=match.channels, image_size=match.size).train()
    model = model.to(memory_format=FORMATS[layout])  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    images = torch.randn(match.batch, match.channels, match.size, match.size)
    images = images.to(memory_format=FORMATS[layout])  # `contiguous` would leave one channel's strides as they are
    labels = torch.randint(match.classes, (match.batch,))

    def step() -> None:
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def network_table(results: Sequence[Result]) -> str:
    """Rows for the eye."""
    lines = [
        "network         twin            input                      twin ms   our ms  time of the twin's (quartiles)"
    ]
    for r in results:
        lines.append(
            f"{r.match.ours:<15} {r.match.twin:<15} {r.match.text():<26} {r.twin_milliseconds.median:7.0f}  "
            f"{r.milliseconds.median:7.0f}  {r.share}"
        )
    return "\n".join(lines)


def save_networks(results: Sequence[Result], folder: Path, facts: dict[str, str]) -> Path:
    """Writes networks.csv, with the facts of `machine`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "networks.csv"
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        columns = [
            "network",
            "twin",
            "input",
            "n",
            "format",
            "twin_format",
            "ms",
            "twin_ms",
            "share",
            "share_q1",
            "share_q3",
        ]
        writer.writerow([*columns, *facts])
        for r in results:
            numbers = (r.milliseconds.median, r.twin_milliseconds.median, r.share.median, *r.share.spread)
            what = (r.match.ours, r.match.twin, r.match.text(), len(r.share.values), r.format, r.twin_format)
            writer.writerow([*what, *(f"{v:.4g}" for v in numbers), *facts.values()])
    return file
