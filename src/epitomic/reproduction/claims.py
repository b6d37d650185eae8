"""The paper's claims about its ImageNet networks, each tested on the runs of one table."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from epitomic.reproduction.comparison import Interval, signed, smallest_difference, welch
from epitomic.support.console import markdown_table
from epitomic.training.run_folder import RunFolder

HEAD = ("claim", "networks", "measure", "seeds", "difference (95 % interval)", "smallest difference", "verdict")
GUESSING = "guessing"  # stands for a network that answers at random
HARDLY = 0.01  # two errors that differ by less are called about the same
ONE_SEED = "one seed: no verdict"


def final_error(run: RunFolder, places: int = 1) -> float:
    """Share of wrong test images, ten crops each; ``places`` is 5 for the top-5 error."""
    test = (run.results or {})["test"]
    return float(test["error"]) if places == 1 else 1 - float(test["top5"])


def mean_error(run: RunFolder, places: int = 1) -> float:
    """Validation error, averaged over all epochs: low if the run learns fast or ends low."""
    return statistics.fmean(_validation_errors(run, places))


def mean_excess(run: RunFolder, places: int = 1) -> float:
    """How far the validation error is above that of the last epoch, averaged over all epochs.

    It is low if the run comes near its own end early, wherever that end is.
    """
    return mean_error(run, places) - _validation_errors(run, places)[-1]


def rises(run: RunFolder, places: int = 1) -> float:
    """Sum of all rises of the validation error from one epoch to the next."""
    errors = _validation_errors(run, places)
    return sum(max(0.0, after - before) for before, after in itertools.pairwise(errors))


def _validation_errors(run: RunFolder, places: int) -> list[float]:
    return [row["val_error" if places == 1 else "val_top5_error"] for row in run.metrics]


@dataclass(frozen=True)
class Claim:
    """One claim: the first network of each pair has a lower value than the second, or about the same.

    Attributes:
        letter: Letter of the claim, ``"a"`` to ``"e"``.
        text: The claim in a few words.
        measure: Computes a value from a run and from the places that count as right.
        name: Name of the measure for readers; ``{error}`` becomes ``error`` or ``top-5 error``.
        pairs: Networks that the claim is about; the second may be `GUESSING`.
        same: Whether the claim is that the two hardly differ: by less than `HARDLY`.
    """

    letter: str
    text: str
    measure: Callable[[RunFolder, int], float]
    name: str
    pairs: tuple[tuple[str, str], ...]
    same: bool = False

    def verdict(self, first: Sequence[float], second: Sequence[float]) -> tuple[str, str]:
        """Returns the difference with its interval, and what it says about the claim."""
        interval = welch(first, second)
        if interval is None:
            return signed(statistics.fmean(first) - statistics.fmean(second)), ONE_SEED
        return str(interval), _is_same(interval) if self.same else _is_lower(interval)


def _is_lower(interval: Interval) -> str:
    return {"lower": "confirmed", "higher": "refuted"}.get(interval.verdict, "undecided")


def _is_same(interval: Interval) -> str:
    if interval.low > -HARDLY and interval.high < HARDLY:
        return "confirmed"
    return "refuted" if interval.low > HARDLY or interval.high < -HARDLY else "undecided"


TWINS = (("epitomic", "maxpool"), ("epitomic_norm", "maxpool_norm"))
NORMALISED = (("epitomic_norm", "epitomic"), ("maxpool_norm", "maxpool"))
TOPOGRAPHIC = (("topographic_norm", "topographic"),)

CLAIMS = (
    Claim("a", "epitomic layers make fewer errors than max-pooling", final_error, "10-crop {error}", TWINS),
    Claim(
        *("b", "normalisation speeds up convergence", mean_error, "validation {error}, mean of all epochs"),
        NORMALISED,
    ),
    Claim(
        *("b", "... also towards each network's own end", mean_excess),
        *("validation {error} above the last epoch's, mean of all epochs", NORMALISED),
    ),
    Claim("b", "... and hardly changes the end", final_error, "10-crop {error}", NORMALISED, same=True),
    Claim("c", "topographic layers are better with normalisation", final_error, "10-crop {error}", TOPOGRAPHIC),
    Claim(
        *("c", "... and do not learn without it", final_error, "10-crop {error}", (("topographic", GUESSING),)),
        same=True,
    ),
    Claim("d", "epitomic curves fluctuate less than max-pooled ones", rises, "sum of all rises of a curve", TWINS),
)


def claims_table(runs: Sequence[RunFolder], letter: str = "") -> str:
    """Returns the table of `claim_rows` as Markdown."""
    return markdown_table(HEAD, claim_rows(runs, letter))


def claim_rows(runs: Sequence[RunFolder], letter: str = "") -> list[list[str]]:
    """Returns a row of cells for each claim and pair of networks that the finished runs are about.

    Args:
        runs: Runs of one table.
        letter: The claim to show; empty for all.
    """
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        if run.finished:
            groups.setdefault(run.model_name, []).append(run)
    return list(_rows(groups, letter))


def _rows(groups: dict[str, list[RunFolder]], letter: str) -> Iterator[list[str]]:
    classes = max((_classes(run) for members in groups.values() for run in members), default=0)
    places = 5 if classes > 10 else 1
    for claim in CLAIMS:
        for pair in claim.pairs if letter in ("", claim.letter) else ():
            if all(model in groups or (model == GUESSING and classes) for model in pair):
                first, second = (
                    [claim.measure(run, places) for run in groups[model]]
                    if model in groups
                    else [1 - places / classes] * 2  # a value without spread, so the interval is that of one mean
                    for model in pair
                )
                difference, verdict = claim.verdict(first, second)
                smallest = smallest_difference(first, second)
                yield [
                    f"({claim.letter}) {claim.text}",
                    " against ".join(model if model == GUESSING else f"`{model}`" for model in pair),
                    claim.name.format(error="top-5 error" if places == 5 else "error"),
                    " and ".join(str(len(groups[model])) for model in pair if model in groups),
                    difference,
                    "" if smallest is None else f"{100 * smallest:.2f}",
                    verdict,
                ]


def _classes(run: RunFolder) -> int:
    return len((run.results or {})["test"].get("classes", ()))
