"""The self-test in C++, which `make test-arm` runs for another processor, on this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from epitomic.ops import library
from tests.native.write_maps import lines

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.skipif(library.NATIVE.library is None, reason=f"native kernel {library.NATIVE.reason}"),
    pytest.mark.skipif(sys.platform != "linux", reason="links with the library as on Linux"),
    pytest.mark.skipif(not (HERE / "../../src/epitomic/native/call.h").exists(), reason="not a source tree"),
]


@pytest.fixture(scope="module")
def self_test(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("self_test")
    (folder / "maps.h").write_text("\n".join(lines()) + "\n")
    program = folder / "self_test"
    command: list[str | Path] = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{folder}"]
    command += [HERE / "self_test.cpp", library.LIBRARY, f"-Wl,-rpath,{library.LIBRARY.parent}", "-o", program]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        pytest.skip("there is no g++ here")
    return program


def test_every_target_agrees_with_scalar_loops(self_test: Path) -> None:
    finished = subprocess.run([self_test], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout
    assert library.NATIVE.target in finished.stdout


def test_a_wrong_coefficient_is_noticed(self_test: Path) -> None:
    finished = subprocess.run([self_test, "--wrong"], capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert "y is wrong" in finished.stdout
