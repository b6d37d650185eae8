"""A part of the hunt, in seconds; `make test-hunt` does 10,000 cases. The corpus is read whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("safetensors", reason="needs safetensors: pip install 'epitomic[train]'")
pytest.importorskip("datasets", reason="needs datasets: pip install 'epitomic[images]'")
if not sys.platform.startswith("linux"):
    pytest.skip("the runner needs Linux", allow_module_level=True)

from epitomic.support.errors import UserError
from tests.hardening import runner
from tests.hardening.formats import Format
from tests.hardening.hunt import hunt
from tests.hardening.runner import run_case

CASES = 300
SECONDS = 25.0


def test_no_damaged_file_does_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # restored at the end
    found = hunt(tmp_path, CASES, seconds=SECONDS)
    print(found.table())
    assert not found.failures, found.failures
    assert found.cases > 30  # also on a busy machine


def _hang() -> str:
    while True:
        pass


def _eat() -> str:
    return str(len(bytearray(2 * runner.MEMORY)))  # the process may give some of its own memory back first


def _crash() -> str:
    import ctypes

    return str(ctypes.string_at(0))


def _program() -> str:
    import subprocess

    return subprocess.run(["true"], check=False).args[0]


def _refuse(text: str) -> str:
    raise UserError(text)


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (_hang, "a hang"),
        (_crash, "a crash"),
        (_eat, "a traceback"),
        (_program, "a foreign program or a pickle"),
        (lambda: str(1 / 0), "a traceback"),
        (lambda: "changed", "an undetected change"),
        (lambda: _refuse("bad"), "an error that does not name the file"),
        (lambda: _refuse("bad file\nbad"), "an error of several lines"),
        (lambda: _refuse("bad file"), "refused"),
        (lambda: "sound", "the same"),
    ],
)
def test_the_oracle_sees_every_kind_of_harm(
    read: object, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "SECONDS", 2.0 if kind == "a hang" else 60.0)  # a busy machine is slow
    path = tmp_path / "file"
    path.write_bytes(b"sound")
    form = Format("x", path, read, lambda raw, random: raw, ("file",))  # type: ignore[arg-type]
    assert run_case(form, b"damaged", "sound").kind == kind
    assert path.read_bytes() == b"sound"
