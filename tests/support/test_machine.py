"""Which code a measurement or a training was made with."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from epitomic.support import machine


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_the_commit_is_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "epitomic"
    package.mkdir(parents=True)
    monkeypatch.setattr(machine, "__file__", str(package / "support" / "machine.py"))

    def git(*words: str) -> str:
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", "-C", str(tmp_path), *author, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert machine.commit() is None
    git("init")
    (tmp_path / "results.md").write_text("none yet")
    git("add", ".")
    git("commit", "-m", "a user's own repository")
    (package / "__init__.py").touch()
    assert machine.commit() is None  # which does not hold the package
    git("add", ".")
    git("commit", "-m", "the package's")
    (tmp_path / "results.md").write_text("a row")
    assert machine.commit() == git("rev-parse", "HEAD")
    (package / "new.py").touch()
    assert machine.commit() == git("rev-parse", "HEAD") + "+"
    (package / "new.py").unlink()
    (package / "__init__.py").write_text("changed")
    assert machine.commit() == git("rev-parse", "HEAD") + "+"


def test_timings_and_trainings_record_the_same_machine() -> None:
    facts, columns = machine.gather_facts(), machine.timing_facts()
    assert list(facts) == ["command", "commit", "versions", "machine", "started"]
    assert list(facts["machine"]) == ["system", "processor", "vectors", "cores", "threads"]
    assert list(columns) == ["cpu", "cores", "threads", "capability", "os", "python", "torch", "epitomic", "commit"]
    assert (columns["cpu"], columns["commit"]) == (facts["machine"]["processor"], facts["commit"] or "")
    assert facts["versions"]["torch"] == columns["torch"]


def test_a_description_names_each_machine_once() -> None:
    def record(cores: int, **more: str) -> dict[str, Any]:
        machine = {"cores": cores, "processor": "abacus", **more}
        return {"machine": machine, "versions": {"torch": "2", "python": "3"}}

    described = machine.describe_facts([record(2), record(2), record(4, vectors="AVX2")])
    assert described == "2 cores of abacus; 4 cores of abacus with AVX2; torch 2, Python 3"


def test_short_commits_keep_the_mark_of_a_change() -> None:
    assert machine.short_commit({"commit": "0123456789abcdef+"}) == "01234567+"
    assert machine.short_commit({"commit": None}) == ""
