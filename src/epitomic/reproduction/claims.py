"""The paper's claims about its ImageNet networks, each tested on the runs of one table."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from epitomic.reproduction.comparison import signed, welch
from epitomic.support.console import markdown_table
from epitomic.training.run_folder import RunFolder

HEAD = ("claim", "networks", "measure", "seeds", "difference (95 % interval)", "verdict")


def final_error(run: RunFolder) -> float:
    """Share of wrong test images, ten crops each."""
    return float((run.results or {})["test"]["error"])


def mean_error(run: RunFolder) -> float:
    """Validation error, averaged over all epochs: low if the run converges fast."""
    return statistics.fmean(row["val_error"] for row in run.metrics)


def rises(run: RunFolder) -> float:
    """Sum of all rises of the validation error from one epoch to the next."""
    errors = [row["val_error"] for row in run.metrics]
    return sum(max(0.0, after - before) for before, after in itertools.pairwise(errors))


@dataclass(frozen=True)
class Claim:
    """One claim: the first network of each pair has a lower value than the second, or about the same.

    Attributes:
        text: The claim in a few words.
        measure: Computes a value from a run.
        name: Name of the measure for readers.
        pairs: Networks that the claim is about.
        same: Whether the claim is that the two hardly differ.
    """

    text: str
    measure: Callable[[RunFolder], float]
    name: str
    pairs: tuple[tuple[str, str], ...]
    same: bool = False

    def verdict(self, first: Sequence[float], second: Sequence[float]) -> tuple[str, str]:
        """Returns the difference with its interval, and what it says about the claim."""
        interval = welch(first, second)
        if interval is None:
            return signed(statistics.fmean(first) - statistics.fmean(second)), "one seed: no verdict"
        if interval.verdict == "undecided":
            return str(interval), "undecided"
        return str(interval), "confirmed" if interval.verdict == "lower" and not self.same else "refuted"


TWINS = (("epitomic", "maxpool"), ("epitomic_norm", "maxpool_norm"))
NORMALISED = (("epitomic_norm", "epitomic"), ("maxpool_norm", "maxpool"))
TOPOGRAPHIC = (("topographic_norm", "topographic"),)

CLAIMS = (
    Claim("(a) epitomic layers make fewer errors than max-pooling", final_error, "10-crop error", TWINS),
    Claim("(b) normalisation speeds up convergence", mean_error, "validation error, mean of all epochs", NORMALISED),
    Claim("(b) ... and hardly changes the end", final_error, "10-crop error", NORMALISED, same=True),
    Claim("(c) topographic layers are better with normalisation", final_error, "10-crop error", TOPOGRAPHIC),
    Claim("(d) epitomic curves fluctuate less than max-pooled ones", rises, "sum of all rises", TWINS),
)


def claims_table(runs: Sequence[RunFolder]) -> str:
    """Returns a row of Markdown for each claim and pair of networks that the finished runs are about."""
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        if run.finished:
            groups.setdefault(run.model_name, []).append(run)
    return markdown_table(HEAD, _rows(groups))


def _rows(groups: dict[str, list[RunFolder]]) -> Iterator[list[str]]:
    for claim in CLAIMS:
        for pair in claim.pairs:
            if all(model in groups for model in pair):
                first, second = ([claim.measure(run) for run in groups[model]] for model in pair)
                networks = " against ".join(f"`{model}`" for model in pair)
                yield [
                    *(claim.text, networks, claim.name, f"{len(first)} and {len(second)}"),
                    *claim.verdict(first, second),
                ]
