"""Which code a measurement or a training was made with."""

import shutil
import subprocess
from pathlib import Path

import pytest

from epitomic import machine


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_the_commit_is_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "epitomic"
    package.mkdir(parents=True)
    monkeypatch.setattr(machine, "__file__", str(package / "machine.py"))

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
