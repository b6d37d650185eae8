from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from epitomic.support.errors import UserError
from epitomic.support.options import add_options, check, differences, from_dict, overridden, to_dict
from epitomic.training.recipe import Optimizer, Recipe
from epitomic.training.recipes import RECIPES, get_recipe


def parse(*words: str) -> Recipe:
    parser = argparse.ArgumentParser()
    add_options(parser, Recipe, "settings", "")
    return overridden(RECIPES["cifar10"], parser.parse_args(words))


def test_overrides() -> None:
    recipe = parse("--model", "maxpool_small", "--epochs", "5", "--optimizer.lr", "0.02", "--model.dropout", "none")
    assert (recipe.model.name, recipe.epochs, recipe.optimizer.lr) == ("maxpool_small", 5, 0.02)
    assert recipe.model.dropout is None
    assert parse("--model.batch-norm", "true").model.batch_norm is True
    assert parse() == RECIPES["cifar10"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "2.5"], "--epochs must be a whole number, got '2.5'"),
        (["--epochs", "0"], "--epochs must be at least 1"),
        (["--optimizer.lr", "-1"], r"--optimizer\.lr must be above 0"),
        (["--optimizer.lr", "nan"], "finite"),
        (["--optimizer.momentum", "1"], "below 1"),
        (["--augmentation.flip", "maybe"], "true or false"),
        (["--schedule", "platou"], "did you mean 'plateau'"),
        (["--data", "mnits"], "did you mean 'mnist'"),
        (["--precision", "16-mixed"], "did you mean 'bf16-mixed'"),
    ],
)
def test_bad_values_name_the_option(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(*words)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_valid_and_round_trip(name: str) -> None:
    recipe = get_recipe(name)
    check(recipe)
    assert from_dict(Recipe, to_dict(recipe), "here") == recipe


def test_unknown_recipe() -> None:
    with pytest.raises(UserError, match="did you mean 'digits'"):
        get_recipe("digit")


def test_json_that_is_no_recipe() -> None:
    good = to_dict(Recipe())
    for bad, message in (
        ([], "does not hold settings"),
        ({**good, "epoch": 3}, "did you mean 'epochs'"),
        ({k: v for k, v in good.items() if k != "seed"}, "no setting seed"),
        ({**good, "epochs": "3"}, "must be a whole number"),
        ({**good, "optimizer": 3}, "optimizer"),
    ):
        with pytest.raises(UserError, match=message):
            from_dict(Recipe, bad, "x.json")


def test_json_of_before_a_setting_was_there_reads_as_not_given() -> None:
    old = to_dict(Recipe())
    del old["model"]["whiten"]
    assert from_dict(Recipe, old, "x.json") == Recipe()


def test_differences() -> None:
    other = replace(Recipe(), epochs=7, optimizer=replace(Optimizer(), lr=0.5))
    assert list(differences(Recipe(), other)) == [("optimizer.lr", 0.01, 0.5), ("epochs", 20, 7)]


def test_the_papers_schedule() -> None:
    recipe = get_recipe("mnist_paper")
    assert (recipe.optimizer.lr, recipe.optimizer.momentum, recipe.optimizer.weight_decay) == (0.01, 0.9, 5e-4)
    assert (recipe.batch_size, recipe.schedule.name, recipe.schedule.factor) == (128, "plateau", 0.1)
