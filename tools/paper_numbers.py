"""Tables 4 to 6 of the paper beside our figures, and why they differ."""

from __future__ import annotations

from typing import Any

from accuracy_figures import PAPER
from claim_figures import PHOTOGRAPHS
from records import RESULTS, finished_runs, published_tables

from epitomic.reproduction.accuracy_table import OverSeeds
from epitomic.reproduction.finished_runs import by_model
from epitomic.reproduction.transfer_plans import TRANSFERS
from epitomic.reproduction.transfer_table import read_entries
from epitomic.support.console import markdown_table

# Tables 4 and 5: top-5 error on ImageNet and mean accuracy on Caltech-101, in %.
PAPER_PHOTOGRAPHS = {
    "maxpool": ("14.2", "87.3"),
    "maxpool_norm": ("14.4", "85.3"),
    "epitomic": ("13.7", "87.8"),
    "epitomic_norm": ("13.6", "87.4"),
    "topographic_norm": ("15.4", "85.8"),
    "alexnet": ("18.2", ""),
}

IMAGENETTE = "ten classes instead of 1,000 and top-1 instead of top-5 error; "
REASONS = {  # why our figures differ from the paper's
    "imagenette": IMAGENETTE + "9,469 images instead of 1.2 million, of 128 pixels; a quarter of the width; 16 epochs",
    "tiny_imagenet": "a hundred classes; 50,000 images of 64 pixels; a quarter of the width; 12 epochs",
    "transfer": "pretrained on {}, as above; 1,024 features instead of 4,096; images of 112 pixels or less",
    "mnist": "the paper mentions no batch normalisation, label smoothing or averaged weights; it gives no layer sizes",
    "cifar10": "the same; we also whiten, shift and mirror the images",
}


def paper_numbers() -> str:
    """Tables 4 to 6 of the paper beside our figures: one row per network, with the reasons for the differences."""
    rows = []
    for name, title in PHOTOGRAPHS.items():
        trained = by_model(finished_runs(name)) if name in published_tables() else {}
        for model in (model for model in PAPER_PHOTOGRAPHS if model in trained):
            paper, top5 = PAPER_PHOTOGRAPHS[model][0], name == "tiny_imagenet"
            ours = str(OverSeeds([run.top5_error if top5 else run.error() for run in trained[model]]))
            what = f"{title}, 10-crop {'top-5 ' * top5}error"
            rows.append(["Table 4", f"`{model}`", "ImageNet, top-5 error", paper, what, ours, REASONS[name]])
    for name, plan in TRANSFERS.items():
        entries = transfer_entries(name)
        for model, (_, accuracy) in PAPER_PHOTOGRAPHS.items():
            means = [
                entry["mean"]
                for run, entry in entries
                if (run.rpartition("-")[0], entry["features"], entry["kernel"]) == (model, "network", "linear")
            ]
            if means and accuracy:
                title = PHOTOGRAPHS[plan.source]
                what = f"networks of {title}, linear kernel, {len(means)} seed{'s' * (len(means) > 1)}"
                reason = REASONS["transfer"].format(title)
                ours = str(OverSeeds(means))
                rows.append(["Table 5", f"`{model}`", "Caltech-101, mean accuracy", accuracy, what, ours, reason])
    for (name, model), error in PAPER.items():
        runs = by_model(finished_runs(name))[model]
        way = "plain" if all("plain" in run.results for run in runs) else "test"
        ours = str(OverSeeds([run.error(way) for run in runs]))
        images = {"mnist": "MNIST", "cifar10": "CIFAR-10"}[name]
        what = f"{images}, one view of each image"
        rows.append(["Table 6", f"`{model}`", f"{images}, test error", error, what, ours, REASONS[name]])
    reasons = [row[-1] for row in rows]
    for row, before in zip(rows[1:], reasons, strict=False):
        row[-1] = "" if row[-1] == before else row[-1]  # a reason stands in the first row that it is for
    head = ("table", "network", "the paper", "its figure, %", "ours", "our figure, %", "why they differ")
    return markdown_table(head, rows)


def transfer_entries(name: str) -> list[tuple[str, dict[str, Any]]]:
    return read_entries(RESULTS / name) if (RESULTS / name).is_dir() else []
