"""What docs/results.md says about the paper's claims, in words and tables that follow from results/."""

from __future__ import annotations

import csv
from collections.abc import Callable

from records import RESULTS, ROOT

from epitomic.reproduction.accuracy_table import OverSeeds, comparison_table
from epitomic.reproduction.claims import ONE_SEED, claim_rows, claims_table
from epitomic.reproduction.comparison import Interval, welch
from epitomic.reproduction.finished_runs import FinishedRun, by_model, read_runs
from epitomic.reproduction.table_plans import TABLES
from epitomic.reproduction.transfer_plans import TRANSFERS
from epitomic.reproduction.transfer_table import read_entries, transfer_claim_rows, transfer_claims
from epitomic.support.console import markdown_table
from epitomic.training.recipes import get_recipe
from epitomic.training.run_folder import RunFolder

IMAGES = ROOT / "docs" / "images"
PHOTOGRAPHS = {"imagenette": "Imagenette", "tiny_imagenet": "Tiny-ImageNet-100"}  # table -> name for readers
TIMED = "networks-epyc-avx512-2-cores"  # where networks were timed with our layers on both sides
Trained = tuple[str, str]  # table and network
# Images, what is equal, epitomes, max-pooling, and the network and the start of the input of its timing.
CHOICES: tuple[tuple[str, str, Trained, Trained, str], ...] = (
    ("photographs, not normalised", "epochs", ("imagenette", "epitomic"), ("imagenette", "maxpool"), "3 x 220"),
    (
        *("photographs, normalised", "epochs", ("imagenette", "epitomic_norm"), ("imagenette", "maxpool_norm")),
        "3 x 220",
    ),
    ("CIFAR-10", "epochs", ("cifar10_short", "epitomic_small"), ("cifar10_short", "maxpool_small"), "3 x 32"),
    (
        *("CIFAR-10", "time, if max-pooling is torch's"),
        *(("cifar10_equal_time", "epitomic_small"), ("cifar10_short", "maxpool_small"), ""),
    ),
    (
        "CIFAR-10, fast networks",
        "epochs",
        ("cifar10_fast", "epitomic_fast"),
        ("cifar10_fast", "maxpool_fast"),
        "3 x 32",
    ),
    ("MNIST", "epochs", ("mnist", "epitomic_small"), ("mnist", "maxpool_small"), "1 x 28"),
)


def runs_of(table: str, model: str) -> list[FinishedRun]:
    """The finished runs of a network in a table; empty if there are none."""
    return by_model(_runs(table)).get(model, [])


def _runs(table: str) -> list[FinishedRun]:
    folder = RESULTS / table
    return read_runs(TABLES[table], folder, get_recipe(table)) if folder.is_dir() else []


def _folders(table: str) -> list[RunFolder]:
    return [RunFolder(RESULTS / table / run.planned.name) for run in _runs(table)]


def _interval(first: Trained, second: Trained) -> Interval | None:
    return welch(*([run.error() for run in runs_of(*one)] for one in (first, second)))


def in_words(first: Trained, second: Trained, name: str) -> str:
    """One sentence about epitomic layers and another kind, in the words that the interval of their runs allows."""
    interval = _interval(first, second)
    if interval is None:
        return f"Epitomic layers and {name}: one seed, no verdict."
    if interval.verdict == "undecided":
        return f"The difference between epitomic layers and {name} is undecided: {interval} points."
    low, high = sorted(abs(100 * edge) for edge in (interval.low, interval.high))
    word = {"lower": "fewer", "higher": "more"}[interval.verdict]
    points = f"{abs(100 * interval.difference):.2f} points {word} errors than {name}"
    return f"Epitomic layers make {points} ({low:.2f} to {high:.2f})."


def in_short() -> str:
    """The page's first list: epitomic layers against the others."""
    mnist = OverSeeds([run.error() for run in runs_of("mnist", "epitomic_small")])
    small = ("cifar10_short", "epitomic_small")
    compared = (
        ("Photographs (Imagenette)", ("imagenette", "epitomic"), ("imagenette", "maxpool"), "max-pooling"),
        (
            "Photographs, filters normalised (Eq. 3)",
            *(("imagenette", "epitomic_norm"), ("imagenette", "maxpool_norm"), "max-pooling"),
        ),
        ("CIFAR-10, same number of epochs", small, ("cifar10_short", "maxpool_small"), "max-pooling"),
        ("CIFAR-10, same number of epochs", small, ("cifar10_short", "maxout_small"), "maxout"),
        (
            "CIFAR-10, same time on a CPU",
            *(("cifar10_equal_time", "epitomic_small"), ("cifar10_short", "maxpool_small")),
            "max-pooling by torch's own layers",
        ),
        ("MNIST", ("mnist", "epitomic_small"), ("mnist", "maxpool_small"), "max-pooling"),
        ("MNIST", ("mnist", "epitomic_small"), ("mnist", "maxout_small"), "maxout"),
    )
    lines = [f"**{title}:** {in_words(first, second, name)}" for title, first, second, name in compared]
    lines[-2] += f" The error of epitomic layers is {mnist} %; the paper has 0.44 %."
    return "".join(f"- {line}\n" for line in lines)


def verdicts() -> str:
    """All claims and their verdicts, one line each."""
    rows = []
    for table, title in PHOTOGRAPHS.items():
        rows += [[row[0], row[-1], row[1], title, row[-3]] for row in claim_rows(_folders(table))]
    for name, plan in TRANSFERS.items():
        for row in _transfer_rows(name):
            if row[1] == "linear":
                claim = "(e) epitomic features transfer better to Caltech-101"
                rows.append([claim, row[-1], row[0], f"networks of {PHOTOGRAPHS[plan.source]}", row[3]])
    rows.sort(key=lambda row: row[0][:3])
    return markdown_table(("claim", "verdict", "networks", "images", "difference, points"), rows)


def _transfer_rows(name: str) -> list[list[str]]:
    return transfer_claim_rows(read_entries(RESULTS / name)) if (RESULTS / name).is_dir() else []


def claim(letter: str) -> str:
    """One claim: its picture and its table for each set of images that has runs."""
    parts = [_picture(letter, "claim-a", "every table")] if letter == "a" else []
    sources = TRANSFERS if letter == "e" else PHOTOGRAPHS
    for name in sources:
        if letter == "e":
            table = transfer_claims(read_entries(RESULTS / name)) if (RESULTS / name).is_dir() else ""
            title = PHOTOGRAPHS[TRANSFERS[name].source]
        else:
            table, title = claims_table(_folders(name), letter), PHOTOGRAPHS[name]
        picture = "" if letter == "a" else _picture(letter, f"claim-{letter}-{name}", title)
        if table.count("\n") > 2:
            parts += [picture, f"{title}:\n\n{table.lstrip()}" if letter != "e" else table.lstrip()]
    return "\n".join(part for part in parts if part)


def _picture(letter: str, name: str, title: str) -> str:
    texts = {
        "a": "Differences between epitomic layers and max-pooling, with their intervals",
        "b": "Validation error with and without normalisation",
        "c": "Validation error of topographic networks with and without normalisation",
        "d": "Validation error of every run, epitomic and max-pooled",
        "e": "Accuracy on Caltech-101 by each network's features and by raw pixels",
    }
    exists = (IMAGES / f"{name}.png").is_file()
    return f'<img src="images/{name}.png" width="520" alt="{texts[letter]}: {title}">\n' if exists else ""


def difference(table: str, model: str, other_table: str, other: str) -> str:
    """A comparison of networks of two tables."""
    text = comparison_table([(runs_of(table, model), runs_of(other_table, other))])
    return text.replace(f"against `{other}`", f"against `{other}` in `{other_table}`")


def choices() -> str:
    """Epitomic layers against max-pooling, as a user meets them: errors, and the time of a step."""
    with (RESULTS / TIMED / "networks.csv").open(newline="") as file:
        timings = list(csv.DictReader(file))
    rows = []
    for images, equal, first, second, size in CHOICES:
        interval = _interval(first, second)
        fewer = {"lower": "epitomic", "higher": "max-pooling", "undecided": "undecided"}
        shares = [
            float(row["share"])
            for row in timings
            if size and (row["network"], row["twin"]) == (first[1], second[1]) and row["input"].startswith(size)
        ]
        rows.append(
            [
                *(images, equal, f"`{first[1]}` against `{second[1]}`"),
                "one seed" if interval is None else str(interval),
                ONE_SEED if interval is None else fewer[interval.verdict],
                f"{shares[0]:.2f}" if shares else "",
            ]
        )
    head = (
        *("images", "equal", "networks", "difference in errors, points", "fewer errors"),
        "time of a step, epitomic / max-pooling",
    )
    return markdown_table(head, rows)


FIGURES: dict[str, Callable[..., str]] = {
    "in-short": in_short,
    "verdicts": verdicts,
    "claim": claim,
    "difference": difference,
    "choices": choices,
}
