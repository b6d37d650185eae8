"""docs/paper-to-code.md: its links lead somewhere, and the paper's equations and protocol are what the code does."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from epitomic import EpitomicConv2d, MaxPoolConv2d, NormConv2d, create_model, max_pool_conv2d
from epitomic.cli import COMMANDS
from epitomic.models import list_models
from epitomic.models.dropout import Dropout
from epitomic.models.lrn import LocalResponseNorm
from epitomic.reproduction.table_plans import TABLES
from epitomic.reproduction.transfer_plans import TRANSFERS
from epitomic.training.recipes import RECIPES, get_recipe

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "paper-to-code.md"
source_tree = pytest.mark.skipif(not PAGE.exists(), reason="not a source tree")


def rows() -> list[list[str]]:
    """The page's rows of four cells: paper, code, test, command."""
    lines = PAGE.read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if len(row) == 4 and row[1] != "code" and "](" in row[1]]


@source_tree
def test_every_row_has_code_a_test_and_a_command() -> None:
    sys.path.append(str(ROOT / "tools"))
    from docs_hooks import LINK, find_line, repository_path

    assert len(rows()) >= 35
    for paper, code, test, command in rows():
        for cell, folder in ((code, "src/"), (test, "tests/")):
            targets = [target.partition("#") for target in LINK.findall(cell)]
            assert targets, f"{paper}: no link in {cell!r}"
            for target, _, symbol in targets:
                path = repository_path(target, "docs/paper-to-code.md")
                assert path is not None, f"{paper}: {target} does not exist"
                assert path.startswith(folder), f"{paper}: {target} is not in {folder}"
                assert symbol, f"{paper}: {target} names no symbol"
                assert find_line(ROOT / path, symbol), f"{paper}: {path} does not define {symbol}"
        named = re.findall(r"\[`epitomic (\w+)`\]\(([^)#]+)", command)
        assert named, f"{paper}: no command in {command!r}"
        for name, target in named:
            assert name in COMMANDS, f"{paper}: there is no command {name!r}"
            assert (PAGE.parent / target).is_file(), f"{paper}: {target} does not exist"


@source_tree
def test_every_equation_table_and_figure_has_a_row() -> None:
    named = {re.match(r"(Eq\. \d|Table \d|Figure \d)", row[0]) for row in rows()}
    found = {match[0] for match in named if match}
    assert found == {
        *(f"Eq. {n}" for n in (1, 2, 3)),
        *(f"Table {n}" for n in range(1, 7)),
        *(f"Figure {n}" for n in (1, 2, 3)),
    }


@source_tree
def test_words_beside_the_commands_exist() -> None:
    """Recipes, tables, networks and options."""
    quoted = [text.split() for row in rows() for text in re.findall(r"`([^`]+)`", row[3])]
    words = {word for text in quoted if text[0] != "epitomic" or len(text) == 1 for word in text}
    parsers = {name: argparse.ArgumentParser() for name in ("train", "evaluate", "transfer")}
    for name, parser in parsers.items():
        importlib.import_module(f"epitomic.cli.{name}").configure(parser)
    options = {option.replace("_", "-") for parser in parsers.values() for option in parser._option_string_actions}
    known = {*RECIPES, *TABLES, *TRANSFERS, *list_models()}
    assert words - options - known == {"statistics.json", "10", "all", "plateau"}


# The equations, literally, on a small example: C = 2 channels, W = 3, D = 2.


def test_equation_1() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(2, 6, 6), torch.randn(2, 3, 3)
    z = F.max_pool2d(F.conv2d(x[None], w[None]), 2)[0, 0]  # (2, 2): positions i that are D = 2 pixels apart
    torch.testing.assert_close(max_pool_conv2d(x[None], w[None], pool_size=2)[0, 0], z)
    for i in range(2):
        for j in range(2):
            window = [(2 * i + a, 2 * j + b) for a in range(2) for b in range(2)]  # i + p
            responses = [(x[:, r : r + 3, c : c + 3] * w).sum() for r, c in window]
            torch.testing.assert_close(z[i, j], max(responses))


@pytest.mark.parametrize("algorithm", ["auto", "direct", "reference"])
def test_equation_2(algorithm: str) -> None:
    check_epitomic_equation(algorithm, normalize=False)


@pytest.mark.parametrize("algorithm", ["auto", "direct", "reference"])
def test_equation_3(algorithm: str) -> None:
    check_epitomic_equation(algorithm, normalize=True)


def check_epitomic_equation(algorithm: str, normalize: bool) -> None:
    torch.manual_seed(0)
    layer = EpitomicConv2d(2, 1, 3, pool_size=2, normalize=normalize, algorithm=algorithm)  # V = W + D - 1 = 4
    x, v = torch.randn(2, 7, 7), layer.weight.detach()[0]
    assert v.shape == (2, 4, 4)
    assert layer.bias is not None
    y, p = (result[0].detach() for result in layer.match(x))  # (3, 3)
    for i in range(3):
        for j in range(3):
            patch = x[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]  # x_i, D = 2 pixels apart
            filters = [v[:, a : a + 3, b : b + 3] for a in range(2) for b in range(2)]  # w_{k,p}
            if normalize:
                centred = [w - w.mean() for w in filters]
                filters = [w / (w.square().sum() + 0.01).sqrt() for w in centred]
            responses = torch.stack([(patch * w).sum() for w in filters])
            torch.testing.assert_close(y[i, j] - layer.bias[0].detach(), responses.max(), rtol=1e-4, atol=1e-5)
            assert p[i, j] == responses.argmax()


# The sentences of the protocol.


@pytest.mark.parametrize("kind", ["maxpool", "epitomic", "topographic"])
def test_networks_of_section_3_2(kind: str) -> None:
    with torch.device("meta"):  # sizes alone: no memory, no time
        plain, normalised = (create_model(kind + suffix) for suffix in ("", "_norm"))

    def convolutions(model: nn.Module) -> list[nn.Module]:
        return [m for m in model.modules() if isinstance(m, nn.Conv2d | EpitomicConv2d | MaxPoolConv2d)]

    def is_normalised(layer: nn.Module) -> bool:
        return isinstance(layer, NormConv2d) or bool(getattr(layer, "normalize", False))

    linear = [m for m in plain.modules() if isinstance(m, nn.Linear)]
    assert len(convolutions(plain)) == 6
    assert [m.out_features for m in linear] == [4096, 4096, 1000]
    assert sum(isinstance(m, nn.ReLU) for m in plain.modules()) == 8
    assert [m.p for m in plain.modules() if isinstance(m, Dropout)] == [0.5, 0.5]
    blocks = list(plain.features.children())  # type: ignore[union-attr]
    with_lrn = [any(isinstance(m, LocalResponseNorm) for m in block.modules()) for block in blocks]
    assert with_lrn == [True, True, False, False, False, False]
    assert not any(map(is_normalised, convolutions(plain)))
    assert [is_normalised(layer) for layer in convolutions(normalised)] == [True, True, False, False, False, True]
    assert {layer.eps for layer in convolutions(normalised) if is_normalised(layer)} == {0.01}


@pytest.mark.parametrize("name", ["imagenet", "mnist_paper", "cifar10_paper"])
def test_training_of_section_3_2(name: str) -> None:
    recipe = get_recipe(name)
    assert (recipe.optimizer.lr, recipe.optimizer.momentum, recipe.optimizer.weight_decay) == (0.01, 0.9, 5e-4)
    assert (recipe.schedule.name, recipe.schedule.factor, recipe.batch_size) == ("plateau", 0.1, 128)
    if name == "imagenet":
        photographs = recipe.photographs
        assert (photographs.size, photographs.crop, photographs.flip) == (256, 220, True)
        assert (photographs.color_noise, recipe.epochs) == (0.1, 90)


def test_small_networks_of_section_3_4() -> None:
    with torch.device("meta"):
        model = create_model("epitomic_small")
    assert sum(isinstance(m, EpitomicConv2d) for m in model.modules()) == 3
    assert sum(isinstance(m, nn.Linear) for m in model.modules()) == 2  # one fully-connected, one softmax layer
    rates = [m.p for m in model.features.modules() if isinstance(m, Dropout)]  # type: ignore[union-attr]
    assert len(rates) == 3
    assert all(rate > 0 for rate in rates)
