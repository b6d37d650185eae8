"""Both Triton algorithms in Triton's interpreter, in a process of its own (`interpreted`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed (extra gpu-dev, Linux x86-64)")
if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
    pytest.skip("older torch does not take kernels of Triton's interpreter", allow_module_level=True)

ROOT = Path(__file__).parents[3]


def interpret(module: str, *arguments: str) -> str:
    """Runs a module of this folder in the interpreter and returns what it prints."""
    command = [sys.executable, "-m", f"tests.ops.triton.{module}", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_random_layers_agree_with_the_reference() -> None:
    assert interpret("interpreted", "0", "30").startswith("30 layers")


@pytest.mark.long
def test_bytes_and_operations_are_those_of_the_interpreter() -> None:
    assert interpret("counted") == "4 shapes, 10 kernels\n"


@pytest.mark.long
def test_many_random_layers_agree_with_the_reference() -> None:
    assert interpret("interpreted", "1000", "200", "large").startswith("200 layers")
