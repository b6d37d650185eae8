"""Worker processes that die: one line, and nothing else."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import torch
from torch import Tensor

from epitomic.data.photographs import loading
from epitomic.support.errors import UserError

ITEMS = [torch.zeros(1)] * 4


def die(item: Tensor) -> Tensor:
    os.kill(os.getpid(), signal.SIGKILL)
    return item


def fail(item: Tensor) -> Tensor:
    raise RuntimeError("a fault of ours")


def lose(item: Tensor) -> Tensor:
    raise FileNotFoundError("an image is gone")


def test_a_worker_that_dies_is_named() -> None:
    with pytest.raises(UserError, match=r"a process that reads images has died \(.*\): try fewer --workers"):
        list(loading.load_in_order(die, ITEMS, 1))


@pytest.mark.parametrize(
    "error", [ConnectionResetError(104, "Connection reset by peer"), EOFError(), FileNotFoundError()]
)
def test_a_worker_that_dies_while_it_hands_over_is_named(error: Exception) -> None:

    def hand_over() -> Iterator[Tensor]:
        raise error
        yield

    with mock.patch.object(loading, "DataLoader") as loader:
        loader.return_value.__iter__.side_effect = hand_over
        with pytest.raises(UserError, match="a process that reads images has died"):
            list(loading.load_in_order(die, ITEMS, 1))


@pytest.mark.parametrize(("function", "error"), [(fail, RuntimeError), (lose, FileNotFoundError)])
def test_what_the_function_raises_is_not_hidden(function: Callable[[Tensor], Tensor], error: type[Exception]) -> None:
    before = multiprocessing.active_children()
    with pytest.raises(error, match="Caught") as caught:
        list(loading.load_in_order(function, ITEMS, 1))
    # Before, the error's traceback kept the worker alive, and Python waited for it for ever at its exit.
    assert caught.tb is not None
    assert multiprocessing.active_children() == before


def test_a_worker_says_nothing_when_the_training_has_gone(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.excepthook
    with mock.patch("signal.signal"):
        loading._begin_worker(0)
    try:
        sys.excepthook(EOFError, EOFError(), None)
        assert capsys.readouterr().err == ""
        sys.excepthook(ValueError, ValueError("a fault of ours"), None)
        assert "a fault of ours" in capsys.readouterr().err
    finally:
        sys.excepthook = before
