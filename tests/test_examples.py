"""The examples of training with other libraries run and learn."""

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
GOOD = 0.9  # share of the test digits; chance is 0.1


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name))


def test_plain_pytorch() -> None:
    pytest.importorskip("sklearn")
    assert example("train_with_ddp.py")["train"](epochs=3) > GOOD


def test_ddp_over_two_processes() -> None:
    pytest.importorskip("sklearn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    setting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, EXAMPLES / "train_with_ddp.py"],
            env={**os.environ, **setting, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    first, second = (process.communicate(timeout=120)[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    assert float(first.rpartition(":")[2]) > GOOD
    assert second == ""


def test_lightning() -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("lightning", reason="lightning is not installed: pip install lightning")
    assert example("train_with_lightning.py")["train"](epochs=3) > GOOD


def test_transformers(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'transformers[torch]'")
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'transformers[torch]'")
    assert example("train_with_transformers.py")["train"](str(tmp_path), epochs=3) > GOOD
