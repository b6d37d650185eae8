"""One experiment: a training by a recipe, then one look at the test images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from epitomic.data.feed import Batch, Feed
from epitomic.evaluation import FIVE, OTHER_WAYS, on_device, score, uneven_error
from epitomic.models.counting import learned
from epitomic.models.pretrained import SHIPPED, describe_pretrained
from epitomic.support.console import Progress, percent
from epitomic.support.files import write_json
from epitomic.training.parallel import connect, create_fabric
from epitomic.training.recipe import Recipe
from epitomic.training.run_folder import EVALUATION, RECIPE, RunFolder
from epitomic.training.setup import Settings, open_feed
from epitomic.training.trainer import Trainer


def train(recipe: Recipe, run: RunFolder, settings: Settings, feed: Feed | None = None) -> dict[str, Any]:
    """Trains a network and then tests the kept weights once.

    A finished run is not trained again. It is tested if that was left out before (``--no-test``), or if the recipe now
    asks for other views of the test images.

    Args:
        recipe: What to train.
        run: Folder that the run is written to.
        settings: How to run it.
        feed: The images of the recipe, if they are open already.

    Returns:
        The results of the run. Of several processes only the first returns them; the others return an empty dict.

    Raises:
        Stopped: After Ctrl-C or SIGTERM.
        UserError: If anything given does not fit, or the loss is no longer finite.
    """
    known = run.results
    if known is not None:
        stored = run.read_recipe()
        run.check_same(recipe, run.folder / RECIPE, stored)
        if ("test" in known and stored == recipe) or not settings.test:
            return known
        return _test_finished(recipe, run, settings, known)
    trainer = Trainer(recipe, run, settings, feed)
    trainer.train()
    if not trainer.main:
        return {}
    state, bad = trainer.state, trainer.feed.bad
    results = {
        **(_test(recipe, run, settings, trainer.fabric.device, bad) if settings.test else {}),
        "validation_error": state.best_error,
        "validation_loss": state.best_loss,
        "best_epoch": state.best_epoch,
        "epochs": state.epoch,
        "wall_seconds": state.seconds,
        "cpu_seconds": state.cpu_seconds,
        "epoch_seconds": state.seconds / max(1, state.epoch),
        "parameters": learned(trainer.model),
        "bad_images": bad,
    }
    run.finish(results)
    return results


def _test_finished(recipe: Recipe, run: RunFolder, settings: Settings, known: dict[str, Any]) -> dict[str, Any]:
    """Replaces the test figures of a finished run. The recipe is written last, so a test cut off is made again."""
    feed, fabric = open_feed(recipe, settings), create_fabric(recipe, settings)
    run.check_images(run.folder, run.facts.get("images", feed.fingerprint), feed.fingerprint)
    connect(fabric, settings)
    if fabric.global_rank != 0:
        return {}
    steps = known["epochs"] * len(feed)
    run.begin(run.read_recipe(), processes=fabric.world_size, first_step=steps, images=feed.fingerprint)
    bad = dict(known["bad_images"])
    tests = _test(recipe, run, settings, fabric.device, bad)
    rest = {name: value for name, value in known.items() if name not in ("test", *OTHER_WAYS)}
    results = {**tests, **rest, "bad_images": bad}
    run.finish(results)
    describe_pretrained(run.folder, **feed.describe())  # notes the views
    run.write_recipe(recipe)
    return results


def _test(
    recipe: Recipe, run: RunFolder, settings: Settings, device: torch.device, bad: dict[str, str]
) -> dict[str, Any]:
    """Tests the kept weights in every way, and adds images that cannot be read to ``bad``."""
    kept = RunFolder(run.folder, settings.data_dir)
    images = kept.open_test_images(views=recipe.data.views, workers=settings.workers, device=device)
    images.bad.update(bad)  # the terminal has named these
    model = kept.model.to(device)
    reports = {}
    for name, batches in images.tests().items():
        told = tell_batches(batches, len(images), f"testing on {images.ways[name]}", quiet=settings.quiet)
        reports[name] = score(model, told).report(images.classes)
    bad.update(images.bad)
    return reports


def tell_batches(batches: Iterable[Batch], count: int, text: str, *, quiet: bool = False) -> Iterator[Batch]:
    """Yields the batches of ``count`` images, and shows how far it is."""
    done = 0
    with Progress(count, unit="images", quiet=quiet) as progress:
        progress.say(f"{text}: {count:,} images")
        for images, labels in batches:
            yield images, labels
            done += len(labels)
            progress.update(f"{text}: {done:,} of {count:,} images", done)


def summarize(results: dict[str, Any], views: str) -> str:
    """Returns the outcome of a training in a line or two."""
    lines, last = [], []
    if "plain" in results:
        shown = "mirrored and shifted" if views == "shifted" else views
        lines.append(f"plain: error {percent(results['plain']['error'])}; {shown} views averaged:")
    if "center" in results:
        center, test = percent(results["center"]["error"]), results["test"]
        if len(test["classes"]) > FIVE:
            lines.append(f"10 crops: top-5 error {percent(1 - test['top5'])}; centre crop: error {center}")
        else:
            lines.append(f"centre crop: error {center}; 10 crops averaged:")
    if "test" in results:
        test = results["test"]
        last.append(f"test error {percent(test['error'])} ({test['errors']} of {test['images']})")
        mean = uneven_error(test)
        if mean is not None:
            last.append(f"mean error over classes {percent(mean)}")
    last.append(f"validation error {percent(results['validation_error'])} at epoch {results['best_epoch'] + 1}")
    last.append(f"{results['parameters']:,} parameters, {results['wall_seconds']:.0f} s")
    return "\n".join([*lines, ", ".join(last)])


def evaluate(run: RunFolder, device: str = "cpu", **options: Any) -> dict[str, Any]:
    """Tests a trained network again, and writes the figures to its run folder unless it ships with the package.

    Args:
        run: The network.
        device: Name of the device to compute on.
        **options: Images, views, crops and workers, as `data.test_images.open_test_images` takes them.

    Returns:
        The image set, how its images were shown, and the figures of `Scores.report`.
    """
    model = on_device(run.model, device)  # first: a folder of another library is refused by its network
    images = run.open_test_images(**options)
    report = score(model, tell_batches(images.batches(), len(images), "testing")).report(images.classes)
    found = {"dataset": images.name, **images.way, **report}
    if run.folder.parent != SHIPPED:
        write_json(run.folder / EVALUATION, found)
    return found
